"""Groups whose members name many topics, or match them: what a request may cost."""

from typing import Any

import pytest

from coordinator.group.consumer import group as consumer_group
from coordinator.group.messages import LeaveRequest, LeavingMember
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import Harness, subscription

NAMES = ["t", "u", "v", "w"]


class Lookups:
    """Counts how often the coordinator asks for a topic."""

    def __init__(self, h: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, is_known = 0, h.topics.is_known

        def counted(name: str) -> bool:
            self.count += 1
            return is_known(name)

        monkeypatch.setattr(h.topics, "is_known", counted)


def test_the_topics_are_looked_at_once_however_many_members_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_group, "FEW_TOPICS", 3)
    h = Harness()
    epoch = h.consumer_heartbeat("m1", subscribed_topic_names=NAMES).answer.member_epoch
    protocols = [("range", subscription("t", "x"))]
    joined = [h.join(protocols=protocols).answer.member_id for _ in range(10)]
    lookups = Lookups(h, monkeypatch)
    left = h.coordinator.leave(LeaveRequest("g", [LeavingMember(member) for member in joined]), h.now_ms)
    assert {*left.member_errors} == {ErrorCode.NONE} and lookups.count == 0
    h.finish_all()
    beaten = h.consumer_heartbeat("m1", epoch, owned={}).answer
    assert beaten.error is ErrorCode.NONE and len(NAMES) <= lookups.count < 4 * len(NAMES)
    assert {*h.coordinator._groups["g"].topics} == {"t", "u"}  # type: ignore[union-attr]


def test_the_last_member_leaves_no_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_group, "FEW_TOPICS", 3)
    h = Harness()
    fields: dict[str, Any] = {"subscribed_topic_names": NAMES, "subscribed_topic_regex": "t.*"}
    for member in ("m1", "m2"):
        h.consumer_heartbeat(member, **fields)
    for member in ("m1", "m2"):
        h.consumer_heartbeat(member, -1)
    assert [*h.coordinator.subscription("g").names] == []
