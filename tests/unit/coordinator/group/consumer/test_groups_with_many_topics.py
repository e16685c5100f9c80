"""Groups whose members name many topics, or match them: what a request may cost."""

from typing import Any

import pytest

from coordinator.group.consumer import group as consumer_group
from coordinator.group.consumer import heartbeats, validation
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.messages import Rights
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


def join(h: Harness, member_id: str, regex: str, **changes: Any) -> ErrorCode:
    fields = {"subscribed_topic_names": None, "has_own_id": True, "subscribed_topic_regex": regex} | changes
    return h.consumer_heartbeat(member_id, **fields).answer.error


def test_what_expressions_match_counts_as_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "MAX_NAMES_OF_GROUP", 5)
    h = Harness()
    h.topics.counts = dict.fromkeys(NAMES, 1)
    assert join(h, "m1", "t|u") is ErrorCode.NONE
    assert join(h, "m2", "t|u") is ErrorCode.NONE, "what members have alike counts once"
    assert join(h, "m3", "t|v") is ErrorCode.NONE
    assert join(h, "m4", "t|w") is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert join(h, "m4", "t|w", rights=Rights(lambda name: name == "t")) is ErrorCode.NONE
    assert join(h, "m5", "", subscribed_topic_names=["x"]) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert h.consumer_heartbeat("m4", -1).answer.error is ErrorCode.NONE
    assert join(h, "m5", "v") is ErrorCode.NONE
    group = h.coordinator._groups["g"]
    assert isinstance(group, ConsumerGroup) and group.topic_count == 5


def test_a_single_expression_may_match_all_topics_of_a_large_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "MAX_NAMES_OF_GROUP", 2)
    h = Harness()
    h.topics.counts = dict.fromkeys(NAMES, 1)
    assert join(h, "m1", ".*") is ErrorCode.NONE
    assert join(h, "m2", ".*") is ErrorCode.NONE
    h.consumer_heartbeat("m2", -1)
    epoch = h.coordinator.describe_consumer_group("g").members[0].epoch
    changed = h.consumer_heartbeat("m1", epoch, subscribed_topic_regex=".+", owned={}).answer
    assert changed.error is ErrorCode.NONE, "the only member may have another one instead"


def test_a_large_expression_is_exchanged_member_by_member(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "MAX_NAMES_OF_GROUP", 2)
    h = Harness()
    h.topics.counts = dict.fromkeys(NAMES, 1)
    assert join(h, "m1", ".*") is join(h, "m2", ".*") is ErrorCode.NONE
    assert join(h, "m3", ".+") is ErrorCode.NONE
    assert join(h, "m4", ".{1,}") is ErrorCode.GROUP_MAX_SIZE_REACHED
    for member in ("m1", "m2"):
        h.consumer_heartbeat(member, -1)
        assert join(h, member, ".+") is ErrorCode.NONE
    assert join(h, "m4", ".{1,}") is ErrorCode.NONE


def test_only_expressions_that_match_other_topics_are_resolved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few of them in one heartbeat, if they match many topics. All are resolved in the end."""
    monkeypatch.setattr(heartbeats, "RESOLVED_AT_ONCE", 3)
    h = Harness()
    h.topics.counts = {"t1": 1, "t2": 1, "u1": 1}
    regexes = ["t.*", "t.+", "(t.*)", "u.*"]
    for number, regex in enumerate(regexes):
        assert join(h, f"m{number}", regex) is ErrorCode.NONE
    asked: list[str] = []

    def may_describe(name: str) -> bool:
        asked.append(name)
        return True

    rights = Rights(may_describe)
    assert join(h, "m4", "u.+", rights=rights) is ErrorCode.NONE
    assert asked == ["u1"], "the others are not resolved again"
    h.topics.counts |= {"t3": 1}
    h.coordinator.topics_changed(["t3"])
    per_heartbeat = []
    for _ in range(4):
        asked.clear()
        epoch = h.coordinator._groups["g"].members["m3"].epoch  # type: ignore[union-attr]
        assert h.consumer_heartbeat("m3", epoch, owned={}, rights=rights).answer.error is ErrorCode.NONE
        per_heartbeat.append(len(asked))
    assert per_heartbeat == [3, 3, 3, 0]
    matched = {regex: len(names) for regex, names in h.coordinator._groups["g"].matches.items()}  # type: ignore[union-attr]
    assert matched == {"t.*": 3, "t.+": 3, "(t.*)": 3, "u.*": 1, "u.+": 1}
