"""Members that subscribe by regular expression (KIP-848, version 1)."""

from typing import Any

import pytest

from coordinator.group.consumer.messages import ConsumerHeartbeatResponse, Rights
from coordinator.group.records.consumer_group import ConsumerGroupRegularExpressionKey
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import RANGE, Harness, reloaded

T, U = b"t" * 16, b"u" * 16
ALL_T = {T: set(range(6))}


def join(h: Harness, member_id: str = "m1", regex: str = "t|u", **changes: Any) -> ConsumerHeartbeatResponse:
    changes = {"subscribed_topic_names": None, "has_own_id": True} | changes
    return h.consumer_heartbeat(member_id, subscribed_topic_regex=regex, **changes).answer


def subscribed_names(h: Harness) -> frozenset[str]:
    return frozenset[str]().union(*h.coordinator.subscription("g").names)


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


@pytest.mark.parametrize("regex", ["(", "(?=t)", "[z-a]", "a**", "\ud800", "a" * 2_049, r"\pL{1000}"])
def test_what_is_none(regex: str) -> None:
    h = Harness()
    assert join(h, regex=regex).error is ErrorCode.INVALID_REGULAR_EXPRESSION
    join(h)
    refused = h.consumer_heartbeat("m1", 1, subscribed_topic_regex=regex).answer
    assert refused.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert h.consumer_heartbeat("m1", 1).answer.error is ErrorCode.NONE


def test_what_takes_too_long_to_match() -> None:
    h = Harness()
    refused = join(h, regex_problem="it takes 400 µs to match one name")
    assert refused.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.error_message == "SubscribedTopicRegex is refused: it takes 400 µs to match one name."
    assert join(h).error is ErrorCode.NONE


def test_an_expression_that_is_not_matched_any_more_keeps_its_topics() -> None:
    h = Harness()
    join(h, regex="t|new")
    h.topics.listed = False  # the expression has become too costly
    h.topics.counts["new"] = 1
    h.coordinator.topics_changed(["new"])
    answer = h.consumer_heartbeat("m1", 1, owned=ALL_T).answer
    assert (answer.error, answer.member_epoch) == (ErrorCode.NONE, 1)
    assert dict(h.log.decoded())[ConsumerGroupRegularExpressionKey("g", "t|new")].topics == ["t"]


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
    assert h.coordinator.subscription("g").regexes == {"u"}
    assert subscribed_names(h) == {"u"}
    h.consumer_heartbeat("m2", -1)
    assert subscribed_names(h) == frozenset()


def test_the_next_coordinator_knows_what_matched() -> None:
    h = Harness()
    join(h)
    again = reloaded(h)
    again.topics.listed = False
    assert subscribed_names(again) == {"t", "u"}
    assert again.consumer_heartbeat("m1", 1).answer.assignment is None
    again.topics.listed = True
    again.topics.counts = {"t": 6}
    assert again.consumer_heartbeat("m1", 1, owned={T: set(range(6))}).answer.assignment == ALL_T


def only_t(name: str) -> bool:
    return name == "t"


def test_what_the_member_may_not_describe_is_not_assigned() -> None:
    """As in Kafka, where the client whose heartbeat resolves an expression needs the right."""
    h = Harness()
    assert join(h, rights=Rights(only_t)).assignment == ALL_T
    assert dict(h.log.decoded())[ConsumerGroupRegularExpressionKey("g", "t|u")].topics == ["t"]
    assert subscribed_names(h) == {"t"}


def test_a_right_is_lost() -> None:
    """When topics change, the expression is resolved again with the rights that the client has by then."""
    h = Harness()
    both = {**ALL_T, U: set(range(3))}
    assert join(h).assignment == both
    h.coordinator.topics_changed(["v"])
    given_back = h.consumer_heartbeat("m1", 1, owned=both, rights=Rights(only_t, 1)).answer
    assert given_back.assignment == ALL_T


def test_a_classic_member_resolves_no_expressions() -> None:
    """A classic member does not name the topics that it may describe."""
    h = Harness()
    join(h, rights=Rights(only_t))
    h.coordinator.topics_changed(["v"])
    joined = h.join(protocols=RANGE)
    assert joined.answer.error is ErrorCode.NONE
    assert subscribed_names(h) == {"t"}
    h.topics.counts |= {"t": 6, "v": 1}
    h.consumer_heartbeat("m1", 1, owned=ALL_T, subscribed_topic_regex=".*")
    assert subscribed_names(h) == {"t", "u", "v"}
