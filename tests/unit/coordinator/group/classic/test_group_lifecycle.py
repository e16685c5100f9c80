"""Loading, resigning, listing and describing."""

from collections.abc import Mapping

import pytest

from coordinator.group.config import GroupConfig
from coordinator.group.messages import FetchedOffset, FetchOffsetsRequest, LeaveRequest
from coordinator.state_machine import MalformedRecordError
from coordinator.topics import TopicPartition
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import CONFIG, REBALANCE_MS, SESSION_MS, Harness, Parked, subscription

T0 = TopicPartition("t", 0)


def reloaded(old: Harness, config: GroupConfig = CONFIG) -> Harness:
    h = Harness(config, load=False)
    h.now_ms = old.now_ms
    for record in old.log.durable:
        h.coordinator.replay(*record)
    h.load()
    return h


def test_while_loading() -> None:
    h = Harness(load=False)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert h.join().answer.error is loading
    assert h.sync("m", 1).answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert h.heartbeat("m", 1) is ErrorCode.NONE
    assert h.coordinator.leave(LeaveRequest("g", []), h.now_ms).error is loading
    assert h.commit().answer == {T0: loading}
    assert h.coordinator.fetch_offsets(FetchOffsetsRequest("g")).error is loading
    assert h.coordinator.list_groups().error is loading
    assert h.coordinator.describe_group("g").error is loading
    assert h.coordinator.next_deadline_ms() is None


def test_members_and_offsets_survive_a_change_of_coordinator() -> None:
    old = Harness()
    leader, follower = old.stable(2)
    old.commit(7, member_id=leader, generation=1)
    old.commit(8, member_id=leader, generation=1)
    old.commit(3, group="simple")
    h = reloaded(old)
    assert h.heartbeat(follower, 1) is ErrorCode.NONE
    assert h.sync(leader, 1).answer.assignment == leader.encode()
    assert h.join(follower).answer.generation == 1
    assert h.coordinator.fetch_offsets(FetchOffsetsRequest("g")).offsets == {T0: FetchedOffset(8)}
    assert h.coordinator.fetch_offsets(FetchOffsetsRequest("simple")).offsets == {T0: FetchedOffset(3)}
    assert h.coordinator.describe_group("g") == old.coordinator.describe_group("g")
    h.advance(SESSION_MS)
    assert h.coordinator.describe_group("g").state == "Empty"


def test_deleted_offsets_are_reported_after_a_change_of_coordinator() -> None:
    old = Harness()
    for group in ("deleted", "left", "again"):
        old.commit(3, group=group)
    parked: Parked[Mapping[str, ErrorCode]] = Parked()
    old.coordinator.delete_groups(["deleted", "again"], old.now_ms, parked)
    old.commit(4, group="again")
    h = Harness(load=False)
    for record in old.log.durable:
        h.coordinator.replay(*record)
    assert h.load() == {("deleted", T0)}


def test_static_members_survive_too() -> None:
    old = Harness()
    leader = old.first_join(group_instance_id="i").member_id
    old.sync(leader, 1, {leader: b"A"})
    h = reloaded(old)
    restarted = h.join(group_instance_id="i").answer
    assert (restarted.generation, restarted.leader_id) == (1, leader)
    assert h.sync(restarted.member_id, 1).answer.assignment == b"A"
    again = reloaded(h)
    assert again.heartbeat(restarted.member_id, 1, "i") is ErrorCode.NONE


def test_tombstones_remove() -> None:
    old = Harness()
    [leader] = old.stable()
    old.commit(1, member_id=leader, generation=1)
    old.leave(leader)
    deleted: Parked[object] = Parked()
    old.coordinator.delete_groups(["g"], old.now_ms, deleted)
    old.finish_all()
    assert reloaded(old).coordinator.list_groups().groups == []


def test_a_group_above_a_lowered_limit_rebalances_down_to_it() -> None:
    old = Harness()
    members = old.stable(3)
    h = reloaded(old, GroupConfig(initial_rebalance_delay_ms=0, max_size=2))
    joins = [h.join(member) for member in members]
    assert [parked.answer.error for parked in joins].count(ErrorCode.GROUP_MAX_SIZE_REACHED) == 1
    assert joins[0].answer.generation == joins[1].answer.generation == 2


def test_malformed_records_are_passed_over() -> None:
    old = Harness()
    old.commit(5)
    h = Harness(load=False)
    [(key, value)] = old.log.durable
    h.coordinator.replay(key, value)
    for bad in [(b"", b""), (key, b"\x00\x03"), (key, b"\x00\x63" + b"\x00" * 40), (key[:-1], value)]:
        with pytest.raises(MalformedRecordError):
            h.coordinator.replay(*bad)
    h.coordinator.replay(b"\x00\x63from the future", b"")
    h.load()
    assert h.coordinator.fetch_offsets(FetchOffsetsRequest("g")).offsets == {T0: FetchedOffset(5)}


def test_resigning_answers_everything_that_was_parked() -> None:
    h = Harness(auto=False)
    leader = h.first_join().member_id
    sync = h.sync(leader, 1)
    commit = h.commit(group="simple")
    joins = [h.join(group="other"), h.join(group="other")]
    h.coordinator.resign(h.now_ms)
    assert {parked.answer.error for parked in joins} == {ErrorCode.NOT_COORDINATOR}
    assert sync.answer.error is ErrorCode.NOT_COORDINATOR
    assert not commit.answers, "the log still has it"
    h.finish_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert commit.answer == {T0: ErrorCode.NOT_COORDINATOR}
    assert h.changes == []
    assert h.join().answer.error is ErrorCode.NOT_COORDINATOR
    assert h.sync("m", 1).answer.error is ErrorCode.NOT_COORDINATOR
    assert h.heartbeat("m", 1) is ErrorCode.NOT_COORDINATOR
    assert h.coordinator.next_deadline_ms() is None


def test_listing_filters_without_case() -> None:
    h = Harness()
    h.stable()
    h.commit(group="simple")
    listed = {g.group_id: (g.protocol_type, g.state, g.group_type) for g in h.coordinator.list_groups().groups}
    assert listed == {"g": ("consumer", "Stable", "classic"), "simple": ("", "Empty", "classic")}
    assert [g.group_id for g in h.coordinator.list_groups({"stable"}).groups] == ["g"]
    assert [g.group_id for g in h.coordinator.list_groups({"empty", "stable"}, {"classic"}).groups] == ["g", "simple"]
    assert h.coordinator.list_groups(types={"consumer"}).groups == []


def test_describing_shows_the_metadata_of_stable_groups_only() -> None:
    """Assignments are shown until members get others."""
    h = Harness()
    [leader] = h.stable()
    group = h.coordinator.describe_group("g")
    assert (group.state, group.protocol_type, group.protocol) == ("Stable", "consumer", "range")
    [member] = group.members
    assert (member.metadata, member.assignment) == (subscription("t"), leader.encode())
    assert (member.client_id, member.client_host) == ("c", "/127.0.0.1")
    h.join()
    group = h.coordinator.describe_group("g")
    assert (group.state, group.protocol, len(group.members)) == ("PreparingRebalance", "", 2)
    assert {(m.metadata, m.assignment) for m in group.members} == {(b"", leader.encode()), (b"", b"")}


def test_every_wait_for_a_member_starts_anew_after_a_pause() -> None:
    h = Harness()
    leader, follower = h.stable(2)
    pending = h.join(group="pending", require_member_id=True).answer.member_id
    consumer = h.consumer_heartbeat("m", group="consumer").answer
    h.coordinator.pause(h.now_ms)
    h.now_ms += 10 * SESSION_MS
    h.coordinator.resume(h.now_ms)
    h.advance(SESSION_MS - 1)
    assert h.heartbeat(leader, 1) is ErrorCode.NONE
    assert not h.join(pending, group="pending").answers, "its id is known still"
    assert h.consumer_heartbeat("m", consumer.member_epoch, group="consumer").answer.error is ErrorCode.NONE
    h.advance(1)
    assert h.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID, "its full time is over"


def test_a_member_that_a_pause_has_released_has_a_session_again() -> None:
    """Its session timer ended while its SyncGroup waited. If its client is gone, nobody reads its partitions."""
    h = Harness()
    joins = [h.join(), h.join()]
    h.advance(0)
    leader, follower = (parked.answer.member_id for parked in joins)
    waiting = h.sync(follower, 1)
    stay_alive(h, leader)
    h.coordinator.pause(h.now_ms)
    assert waiting.answer.error is ErrorCode.NOT_COORDINATOR
    h.coordinator.resume(h.now_ms)
    assert h.sync(leader, 1, {leader: b"", follower: b"all"}).answer.error is ErrorCode.NONE
    stay_alive(h, leader)
    assert h.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def stay_alive(h: Harness, member_id: str) -> None:
    """For a bit more than a session."""
    for _ in range(2):
        h.advance(SESSION_MS // 2 + 1)
        h.heartbeat(member_id, 1)


def test_a_static_member_that_a_pause_has_released_has_a_session_again() -> None:
    """Without one, its group waits for it for ever."""
    h = Harness()
    member = h.first_join(group_instance_id="i").member_id
    h.sync(member, 1, {member: b"all"})
    h.join(require_member_id=True, session_timeout_ms=2 * SESSION_MS)
    waiting = h.join(member, group_instance_id="i")
    h.advance(SESSION_MS)
    h.coordinator.pause(h.now_ms)
    assert waiting.answer.error is ErrorCode.NOT_COORDINATOR
    h.coordinator.resume(h.now_ms)
    h.advance(3 * SESSION_MS)
    assert h.coordinator.describe_group("g").state == "Empty"


def test_a_rebalance_continues_after_a_pause() -> None:
    h = Harness()
    leader, follower = h.stable(2)
    newcomer = h.join()
    parked = h.join(leader)
    h.coordinator.pause(h.now_ms)
    assert {newcomer.answer.error, parked.answer.error} == {ErrorCode.NOT_COORDINATOR}
    h.now_ms += 10 * REBALANCE_MS
    h.coordinator.resume(h.now_ms)
    h.advance(SESSION_MS - 1)
    again = [h.join(member) for member in (leader, follower)]
    assert {parked.answer.generation for parked in again} == {2}, "nobody was given up, nobody is waited for in vain"
