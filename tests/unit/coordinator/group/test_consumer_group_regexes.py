"""Members that subscribe by regular expression (KIP-848, version 1)."""

from typing import Any

import pytest

from coordinator.group.consumer.messages import ConsumerHeartbeatResponse
from coordinator.group.records.consumer_group import ConsumerGroupRegularExpressionKey
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import Harness, reloaded

T, U = b"t" * 16, b"u" * 16
ALL_T = {T: set(range(6))}


def join(h: Harness, member_id: str = "m1", regex: str = "t|u", **changes: Any) -> ConsumerHeartbeatResponse:
    changes = {"subscribed_topic_names": None, "has_own_id": True} | changes
    return h.consumer_heartbeat(member_id, subscribed_topic_regex=regex, **changes).answer


def test_whole_names_match() -> None:
    h = Harness()
    h.topics.counts |= {"tu": 1}
    assert join(h).assignment == {T: set(range(6)), U: set(range(3))}
    assert dict(h.log.decoded())[ConsumerGroupRegularExpressionKey("g", "t|u")].topics == ["t", "u"]


def test_names_and_a_regular_expression() -> None:
    h = Harness()
    assert join(h, regex="u", subscribed_topic_names=["t"]).assignment == {T: set(range(6)), U: set(range(3))}


def test_no_topics_at_all() -> None:
    h = Harness()
    answer = join(h, regex="")
    assert (answer.error, answer.member_epoch, answer.assignment) == (ErrorCode.NONE, 1, {})


@pytest.mark.parametrize("regex", ["(", "(?=t)", "[z-a]", "a**", "\ud800", "a" * 32_768])
def test_what_is_none(regex: str) -> None:
    h = Harness()
    assert join(h, regex=regex).error is ErrorCode.INVALID_REGULAR_EXPRESSION
    join(h)
    refused = h.consumer_heartbeat("m1", 1, subscribed_topic_regex=regex).answer
    assert refused.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert h.consumer_heartbeat("m1", 1).answer.error is ErrorCode.NONE


def test_expensive_expressions_end() -> None:
    h = Harness()
    h.topics.counts = {"a" * 249: 1}
    assert join(h, regex="(a*)*b|(a|a)+$|(.*.*.*.*)*=").error is ErrorCode.NONE


def test_new_and_deleted_topics() -> None:
    h = Harness()
    join(h)
    h.topics.counts = {"t": 6, "v": 1}
    h.coordinator.topics_changed(["u", "v"])
    answer = h.consumer_heartbeat("m1", 1, owned={T: set(range(6))}).answer
    assert (answer.member_epoch, answer.assignment) == (2, ALL_T)


def test_a_changed_expression() -> None:
    h = Harness()
    join(h)
    given_back = h.consumer_heartbeat("m1", 1, subscribed_topic_regex="u").answer
    assert given_back.assignment == {U: set(range(3))}
    assert h.consumer_heartbeat("m1", 1, owned=given_back.assignment).answer.member_epoch == 2
    assert h.log.decoded().count((ConsumerGroupRegularExpressionKey("g", "t|u"), None)) == 1


def test_an_expression_without_members_is_forgotten() -> None:
    h = Harness()
    join(h)
    join(h, "m2", "u")
    h.consumer_heartbeat("m1", -1)
    assert h.coordinator.subscribed_regexes() == {"u"}
    assert h.coordinator.subscribed_names() == {"u"}
    h.consumer_heartbeat("m2", -1)
    assert h.coordinator.subscribed_names() == frozenset()


def test_the_next_coordinator_knows_what_matched() -> None:
    h = Harness()
    join(h)
    again = reloaded(h)
    again.topics.listed = False
    assert again.coordinator.subscribed_names() == {"t", "u"}
    assert again.consumer_heartbeat("m1", 1).answer.assignment is None
    again.topics.listed = True
    again.topics.counts = {"t": 6}
    assert again.consumer_heartbeat("m1", 1, owned={T: set(range(6))}).answer.assignment == ALL_T
