"""The consumer group protocol (KIP-848), heartbeat by heartbeat."""

from typing import Any

import pytest

from coordinator.group.config import ConsumerTimes, GroupConfig
from coordinator.group.consumer.member import ConsumerMember, MemberState, reconcile
from coordinator.group.consumer.validation import MAX_TOPIC_NAMES
from coordinator.group.records.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import CONFIG, REBALANCE_MS, Harness, Parked, reloaded

T, U, L = b"t" * 16, b"u" * 16, b"l" * 16
ALL_T = {T: set(range(6))}
SESSION_MS = CONFIG.consumer_session_timeout_ms


def two_members(h: Harness) -> None:
    """m1 and m2 share topic t, three partitions each, in epoch 2."""
    h.consumer_heartbeat("m1")
    h.consumer_heartbeat("m2")
    revoked = h.consumer_heartbeat("m1", 1, owned=ALL_T).answer
    h.consumer_heartbeat("m1", 1, owned=revoked.assignment)
    h.consumer_heartbeat("m2", 2, owned={})
    assert h.coordinator.describe_consumer_group("g").state == "Stable"


def test_the_first_member_gets_everything() -> None:
    h = Harness()
    answer = h.consumer_heartbeat("m1").answer
    assert (answer.error, answer.member_id, answer.member_epoch) == (ErrorCode.NONE, "m1", 1)
    assert answer.heartbeat_interval_ms == CONFIG.consumer_heartbeat_interval_ms
    assert answer.assignment == ALL_T
    kinds = [type(key) for key, _ in h.log.decoded()]
    records = [
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupPartitionMetadataKey,
        ConsumerGroupMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupCurrentMemberAssignmentKey,
    ]
    assert kinds == records


def test_a_member_without_an_id_is_given_one() -> None:
    assert Harness().consumer_heartbeat().answer.member_id == "id1"


def test_quiet_heartbeats_write_and_say_nothing() -> None:
    h = Harness()
    h.consumer_heartbeat("m1")
    written = len(h.log.durable)
    answer = h.consumer_heartbeat("m1", 1).answer
    assert (answer.member_epoch, answer.assignment) == (1, None)
    assert len(h.log.durable) == written


def test_a_full_heartbeat_gets_its_assignment_again() -> None:
    h = Harness()
    h.consumer_heartbeat("m1")
    full: dict[str, Any] = {"rebalance_timeout_ms": 1_000, "subscribed_topic_names": ["t"], "owned": ALL_T}
    assert h.consumer_heartbeat("m1", 1, **full).answer.assignment == ALL_T


def test_a_newcomer_waits_until_the_owner_has_given_back() -> None:
    h = Harness()
    h.consumer_heartbeat("m1")
    joined = h.consumer_heartbeat("m2").answer
    assert (joined.member_epoch, joined.assignment) == (2, {})
    assert h.coordinator.describe_consumer_group("g").state == "Reconciling"
    revoke = h.consumer_heartbeat("m1", 1, owned=ALL_T).answer
    assert revoke.member_epoch == 1, "it stays in its epoch until it has given back"
    assert revoke.assignment is not None
    assert len(revoke.assignment[T]) == 3
    assert h.consumer_heartbeat("m1", 1).answer.assignment is None
    assert h.consumer_heartbeat("m2", 2).answer.assignment is None
    assert h.consumer_heartbeat("m1", 1, owned=revoke.assignment).answer.member_epoch == 2
    got = h.consumer_heartbeat("m2", 2).answer
    assert got.assignment is not None
    assert got.assignment[T] | revoke.assignment[T] == ALL_T[T]
    assert h.coordinator.describe_consumer_group("g").state == "Stable"


def test_an_answer_waits_for_the_log_and_for_all_before_it() -> None:
    h = Harness(auto=False)
    joined = h.consumer_heartbeat("m1")
    quiet = h.consumer_heartbeat("m1", 1)
    assert not joined.answers
    assert not quiet.answers, "it builds on what is not durable yet"
    h.finish_all()
    assert joined.answer.member_epoch == quiet.answer.member_epoch == 1


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_what_the_log_refused_is_written_before_the_next_answer(refusal: ErrorCode, error: ErrorCode) -> None:
    h = Harness(auto=False)
    joined = h.consumer_heartbeat("m1")
    h.finish_all(refusal)
    assert joined.answer.error is error
    again = h.consumer_heartbeat("m1", 1)
    assert not again.answers
    h.finish_all()
    assert again.answer.error is ErrorCode.NONE
    assert reloaded(h).coordinator.describe_consumer_group("g") == h.coordinator.describe_consumer_group("g")


@pytest.mark.parametrize("stored", [1, 2])
def test_nothing_newer_is_stored_before_what_the_log_refused(stored: int) -> None:
    """The next coordinator would believe a member that was removed, and another one that got its partitions."""
    h = Harness()
    h.consumer_heartbeat("m1")
    h.consumer_heartbeat("m2")
    h.consumer_heartbeat("m1", 1, owned={T: {0, 1, 2}})
    h.consumer_heartbeat("m2", 2)
    h.auto = False
    left = h.consumer_heartbeat("m2", -1)
    following = h.consumer_heartbeat("m1", 2)
    h.log.finish_one(h.now_ms, ErrorCode.NOT_ENOUGH_REPLICAS)
    for _ in range(stored):
        if h.log.waiting:
            h.log.finish_one(h.now_ms)
    assert left.answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert following.answer.assignment == ALL_T
    assert reloaded(h).coordinator.describe_consumer_group("g") == h.coordinator.describe_consumer_group("g")


def test_a_group_that_is_deleted_leaves_nothing_in_the_log() -> None:
    """Although its last member has left in the meantime."""
    h = Harness()
    h.consumer_heartbeat("m1")
    h.auto = False
    h.consumer_heartbeat("m1", 1, subscribed_topic_names=["u"])
    h.consumer_heartbeat("m1", -1)
    h.coordinator.delete_groups(["g"], h.now_ms, Parked[Any]())
    h.log.finish_one(h.now_ms, ErrorCode.NOT_ENOUGH_REPLICAS)
    h.finish_all()
    assert reloaded(h).coordinator.list_groups().groups == []
    last = dict(h.log.durable)
    assert not any(last.values())


def test_a_classic_group_leaves_nothing_of_a_consumer_group_in_the_log() -> None:
    """Although the log refuses what was written when the members left."""
    h = Harness()
    h.consumer_heartbeat("m1")
    h.consumer_heartbeat("m2")
    h.auto = False
    h.consumer_heartbeat("m1", -1)
    h.consumer_heartbeat("m2", -1)
    h.join()
    h.finish_all(ErrorCode.NOT_ENOUGH_REPLICAS)
    last = dict(h.log.durable)
    assert not any(last.values())


def test_a_refused_record_that_a_newer_one_replaced_is_not_written_again() -> None:
    h = Harness(auto=False)
    h.consumer_heartbeat("m1")
    h.consumer_heartbeat("m1", 1, subscribed_topic_names=["t", "u"])
    h.log.finish_one(h.now_ms, ErrorCode.REQUEST_TIMED_OUT)
    h.finish_all()
    h.consumer_heartbeat("m1", 2)
    h.finish_all()
    assert reloaded(h).coordinator.describe_consumer_group("g") == h.coordinator.describe_consumer_group("g")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"owned": None}, ErrorCode.INVALID_REQUEST),
        ({"owned": ALL_T}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": []}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "m" * 32_768}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 1, "member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"group": ""}, ErrorCode.INVALID_REQUEST),
        ({"group": "other", "epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"group": "other", "epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_id": "m2", "epoch": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "m2", "epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"epoch": 2}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"epoch": 1, "subscribed_topic_names": ["t"] * (MAX_TOPIC_NAMES + 1)}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 1, "subscribed_topic_names": ["t" * 249] * 20_000}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": "r" * 40_000}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": "i" * 40_000}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_refused_heartbeats_change_nothing(changes: dict[str, Any], error: ErrorCode) -> None:
    h = Harness()
    h.consumer_heartbeat("m1")
    before = h.coordinator.describe_consumer_group("g")
    assert h.consumer_heartbeat(**({"member_id": "m1"} | changes)).answer.error is error
    assert h.coordinator.describe_consumer_group("g") == before
    assert len(h.coordinator.list_groups().groups) == 1


def test_a_refused_first_member_leaves_no_group() -> None:
    h = Harness()
    h.consumer_heartbeat("m1", subscribed_topic_names=[])
    assert h.coordinator.list_groups().groups == []


def test_the_previous_epoch_will_do_after_a_lost_answer() -> None:
    h = Harness()
    h.consumer_heartbeat("m1")
    h.consumer_heartbeat("m1", 1, subscribed_topic_names=["u"], owned={})
    assert h.consumer_heartbeat("m1", 1).answer.error is ErrorCode.FENCED_MEMBER_EPOCH, "what it owns is not said"
    assert h.consumer_heartbeat("m1", 1, owned={T: {0}}).answer.error is ErrorCode.FENCED_MEMBER_EPOCH
    assert h.consumer_heartbeat("m1", 1, owned={U: {0}}).answer.member_epoch == 2


def test_a_member_that_starts_over_is_fenced_once_it_has_moved_on() -> None:
    h = Harness()
    h.consumer_heartbeat("m1")
    assert h.consumer_heartbeat("m1").answer.member_epoch == 1, "its first answer may have been lost"
    h.consumer_heartbeat("m1", 1, subscribed_topic_names=["u"], owned={})
    assert h.consumer_heartbeat("m1").answer.error is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_full_group_refuses_members() -> None:
    h = Harness(GroupConfig(consumer_max_size=1))
    h.consumer_heartbeat("m1")
    assert h.consumer_heartbeat("m2").answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert h.consumer_heartbeat("m1", 1).answer.error is ErrorCode.NONE


def test_leaving_frees_the_partitions() -> None:
    h = Harness()
    two_members(h)
    left = h.consumer_heartbeat("m2", -1).answer
    assert (left.error, left.member_id, left.member_epoch) == (ErrorCode.NONE, "m2", -1)
    assert h.consumer_heartbeat("m1", 2).answer.assignment == ALL_T
    assert h.consumer_heartbeat("m2", 2).answer.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_out() -> None:
    h = Harness()
    two_members(h)
    h.advance(SESSION_MS - 1)
    h.consumer_heartbeat("m1", 2)
    h.advance(1)
    assert h.consumer_heartbeat("m1", 2).answer.assignment == ALL_T


def test_a_member_that_does_not_revoke_in_time_is_fenced() -> None:
    h = Harness()
    h.consumer_heartbeat("m1", rebalance_timeout_ms=10_000)
    h.consumer_heartbeat("m2")
    h.consumer_heartbeat("m1", 1, owned=ALL_T)
    h.advance(9_999)
    assert h.consumer_heartbeat("m1", 1).answer.error is ErrorCode.NONE
    h.advance(1)
    assert h.consumer_heartbeat("m1", 1).answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.consumer_heartbeat("m2", 2).answer.assignment == ALL_T


def test_new_partitions_and_topics_are_assigned_when_topics_change() -> None:
    h = Harness()
    h.consumer_heartbeat("m1", subscribed_topic_names=["t", "l"])
    h.topics.counts |= {"t": 7, "l": 1}
    assert h.consumer_heartbeat("m1", 1).answer.assignment is None
    h.coordinator.topics_changed(["unrelated"])
    assert h.consumer_heartbeat("m1", 1).answer.assignment is None
    h.coordinator.topics_changed(["l"])
    answer = h.consumer_heartbeat("m1", 1).answer
    assert (answer.member_epoch, answer.assignment) == (2, {T: set(range(7)), L: {0}})
    del h.topics.counts["t"]
    h.coordinator.topics_changed(["t"])
    answer = h.consumer_heartbeat("m1", 2, owned={T: {0}}).answer
    assert answer.assignment == {L: {0}}


def test_the_assignor_that_most_members_want() -> None:
    h = Harness()
    h.consumer_heartbeat("m1", server_assignor="range")
    assert h.coordinator.describe_consumer_group("g").assignor == "range"
    for member_id in ("m2", "m3"):
        h.consumer_heartbeat(member_id, server_assignor="uniform")
    assert h.coordinator.describe_consumer_group("g").assignor == "uniform"


def test_what_is_unknown_of_topics_changes_nothing() -> None:
    """A coordinator that has just taken over has not looked up the topics yet."""
    h = Harness()
    h.consumer_heartbeat("m1", subscribed_topic_names=["t", "u"])
    h.topics.unknown = {"t", "u"}
    h.topics.counts = {"t": 7}
    h.coordinator.topics_changed(["t", "u"])
    quiet = h.consumer_heartbeat("m1", 1).answer
    assert (quiet.member_epoch, quiet.assignment) == (1, None)
    h.topics.unknown = set()
    assert h.consumer_heartbeat("m1", 1, owned=ALL_T).answer.assignment == {T: set(range(7))}


def test_a_group_may_have_times_of_its_own() -> None:
    times: dict[str, ConsumerTimes] = {}
    h = Harness(own_times=times.get)
    h.consumer_heartbeat("m1")
    times["g"] = ConsumerTimes(60_000, 7_000)
    assert h.consumer_heartbeat("m1", 1).answer.heartbeat_interval_ms == 7_000
    assert h.consumer_heartbeat("m1", group="other").answer.heartbeat_interval_ms == 5_000
    h.advance(59_999)
    assert len(h.coordinator.describe_consumer_group("g").members) == 1
    assert not h.coordinator.describe_consumer_group("other").members
    h.advance(1)
    assert not h.coordinator.describe_consumer_group("g").members


def test_members_and_assignments_survive_a_change_of_coordinator() -> None:
    old = Harness()
    two_members(old)
    h = reloaded(old)
    assert h.coordinator.describe_consumer_group("g") == old.coordinator.describe_consumer_group("g")
    assert h.consumer_heartbeat("m1", 2).answer.error is ErrorCode.NONE
    h.advance(SESSION_MS)
    assert h.coordinator.describe_consumer_group("g").state == "Empty"


def test_a_revocation_continues_after_a_change_of_coordinator() -> None:
    old = Harness()
    old.consumer_heartbeat("m1")
    old.consumer_heartbeat("m2")
    old.consumer_heartbeat("m1", 1, owned=ALL_T)
    h = reloaded(old)
    for _ in range(REBALANCE_MS // 5_000):
        h.consumer_heartbeat("m1", 1)
        h.consumer_heartbeat("m2", 2)
        h.advance(5_000)
    assert h.consumer_heartbeat("m1", 1).answer.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_resigned_and_loading() -> None:
    h = Harness(load=False)
    assert h.consumer_heartbeat("m1").answer.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    h = Harness(auto=False)
    parked = h.consumer_heartbeat("m1")
    h.coordinator.resign(h.now_ms)
    h.finish_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert parked.answer.error is ErrorCode.NOT_COORDINATOR
    assert h.consumer_heartbeat("m1").answer.error is ErrorCode.NOT_COORDINATOR


def test_a_target_that_moves_on_while_a_member_gives_back() -> None:
    member = ConsumerMember("m", epoch=3, assigned={T: {0}}, to_revoke={T: {1}}, state=MemberState.UNREVOKED_PARTITIONS)
    after = reconcile(member, {T: {0, 1}}, 9, {T: {0}}, lambda partition: partition == (T, 1))
    assert (after.state, after.epoch, after.assigned) == (MemberState.UNRELEASED_PARTITIONS, 9, {T: {0}})
    after = reconcile(member, {U: {0}}, 9, {T: {0}}, lambda partition: False)
    assert (after.state, after.epoch, after.to_revoke) == (MemberState.UNREVOKED_PARTITIONS, 4, {T: {0}})
