"""SyncGroup, Heartbeat and the timers of a generation."""

import pytest

from coordinator.group.classic import rebalance
from coordinator.group.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import REBALANCE_MS, SESSION_MS, Harness


def test_followers_wait_until_the_leaders_assignment_is_durable() -> None:
    h = Harness(auto=False)
    joins = [h.join(), h.join()]
    h.advance(0)
    leader, follower = (parked.answer.member_id for parked in joins)
    waiting = h.sync(follower, 1)
    leading = h.sync(leader, 1, {leader: b"L", follower: b"F", "stranger": b"S"})
    assert not waiting.answers
    assert not leading.answers
    h.finish_all()
    assert (waiting.answer.assignment, leading.answer.assignment) == (b"F", b"L")
    assert (leading.answer.protocol_type, leading.answer.protocol_name) == ("consumer", "range")
    key, value = h.log.decoded()[-1]
    assert key == GroupMetadataKey("g")
    assert isinstance(value, GroupMetadataValue)
    assert {m.member_id: m.assignment for m in value.members} == {leader: b"L", follower: b"F"}


def test_members_that_the_leader_forgot_get_nothing() -> None:
    h = Harness()
    joins = [h.join(), h.join()]
    h.advance(0)
    leader, follower = (parked.answer.member_id for parked in joins)
    h.sync(leader, 1, {leader: b"L"})
    assert h.sync(follower, 1).answer.assignment == b""


def test_a_generation_has_one_assignment_even_if_the_leader_repeats_itself() -> None:
    h = Harness(auto=False)
    leader = h.first_join().member_id
    first = h.sync(leader, 1, {leader: b"one"})
    second = h.sync(leader, 1, {leader: b"two"})
    h.finish_all()
    assert first.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.answer.assignment == b"one"
    assert [value.members[0].assignment for _, value in h.log.decoded()] == [b"one"]


def test_a_failed_store_fails_the_syncs_and_rebalances() -> None:
    h = Harness(auto=False)
    leader = h.first_join().member_id
    parked = h.sync(leader, 1, {leader: b"L"})
    h.finish_all(ErrorCode.REQUEST_TIMED_OUT)
    assert parked.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert h.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert h.join(leader).answer.generation == 2


def test_a_rebalance_meanwhile_ends_the_syncs() -> None:
    h = Harness(auto=False)
    leader = h.first_join().member_id
    parked = h.sync(leader, 1, {leader: b"L"})
    h.join()
    assert parked.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    h.finish_all()
    assert h.coordinator.describe_group("g").state == "PreparingRebalance"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "consumer", "protocol_name": "range"}, ErrorCode.NONE),
    ],
)
def test_sync_is_for_members_of_this_generation(changes: dict[str, object], error: ErrorCode) -> None:
    h = Harness()
    [leader] = h.stable()
    assert h.sync(**({"member_id": leader, "generation": 1} | changes)).answer.error is error  # type: ignore[arg-type]


def test_sync_and_heartbeat_without_a_group() -> None:
    h = Harness()
    assert h.sync("m", 1).answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.heartbeat("m", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_during_the_gathering_says_rejoin() -> None:
    h = Harness()
    leader, follower = h.stable(2)
    h.join(leader)
    assert h.sync(follower, 1).answer.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_heartbeats_of_this_generation_keep_a_member_alive() -> None:
    h = Harness()
    [leader] = h.stable()
    for _ in range(5):
        h.advance(SESSION_MS - 1)
        assert h.heartbeat(leader, 1) is ErrorCode.NONE
    assert h.heartbeat(leader, 0) is ErrorCode.ILLEGAL_GENERATION
    h.advance(SESSION_MS)
    assert h.heartbeat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.coordinator.describe_group("g").state == "Empty"


def test_heartbeats_while_the_leader_assigns_are_fine() -> None:
    h = Harness()
    leader = h.first_join().member_id
    assert h.heartbeat(leader, 1) is ErrorCode.NONE


def test_a_parked_request_is_as_good_as_heartbeats() -> None:
    h = Harness()
    leader, follower = h.stable(2)
    parked = h.join(leader)
    for _ in range(REBALANCE_MS // 5_000 - 1):
        h.heartbeat(follower, 1)
        h.advance(5_000)
    assert not parked.answers
    h.join(follower)
    assert parked.answer.error is ErrorCode.NONE


def test_a_silent_member_makes_the_rest_rebalance() -> None:
    h = Harness()
    leader, follower = h.stable(2)
    h.advance(SESSION_MS - 1)
    h.heartbeat(follower, 1)
    h.advance(1)
    assert h.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert h.heartbeat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_never_syncs_is_out_after_the_rebalance_timeout() -> None:
    h = Harness()
    joins = [h.join(), h.join()]
    h.advance(0)
    leader, follower = (parked.answer.member_id for parked in joins)
    waiting = h.sync(follower, 1)
    for _ in range(REBALANCE_MS // 5_000):
        h.heartbeat(leader, 1)
        h.advance(5_000)
    assert waiting.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert h.heartbeat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    rejoined = h.join(follower)
    assert (rejoined.answer.generation, rejoined.answer.leader_id) == (2, follower)


def test_a_follower_that_never_syncs_is_out_though_the_group_is_stable() -> None:
    h = Harness()
    joins = [h.join(), h.join()]
    h.advance(0)
    leader, follower = (parked.answer.member_id for parked in joins)
    h.sync(leader, 1, {})
    for _ in range(REBALANCE_MS // 5_000):
        h.heartbeat(leader, 1)
        h.heartbeat(follower, 1)
        h.advance(5_000)
    assert h.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert h.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_assignment_stored_too_late_is_not_the_next_generations() -> None:
    h = Harness(auto=False)
    leader = h.first_join().member_id
    h.sync(leader, 1, {leader: b"old"})
    newcomer = h.join()
    h.join(leader)
    assert newcomer.answer.generation == 2
    waiting = h.sync(newcomer.answer.member_id, 2)
    h.finish_all()
    assert not waiting.answers
    h.sync(leader, 2, {newcomer.answer.member_id: b"new"})
    h.finish_all()
    assert waiting.answer.assignment == b"new"


def test_a_record_that_the_log_cannot_hold_is_not_even_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata and assignments of a group may have tens of megabytes. The answer is Kafka's."""
    h = Harness(auto=False)
    h.log.max_record_bytes = 1_000
    joins = [h.join(), h.join()]
    h.advance(0)
    leader, follower = (parked.answer.member_id for parked in joins)
    monkeypatch.setattr(rebalance, "group_record", lambda group, assignments: pytest.fail("it is encoded"))
    syncs = [h.sync(follower, 1), h.sync(leader, 1, {leader: bytes(500), follower: bytes(500)})]
    assert not syncs[1].answers
    h.finish_all()
    assert [parked.answer.error for parked in syncs] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert h.coordinator.describe_group("g").state == "PreparingRebalance"
    assert not h.log.durable
