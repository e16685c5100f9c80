"""A consumer group with very many classic members becomes a classic one: the coordinator answers others meanwhile."""

import pytest

from coordinator import slices
from coordinator.group import downgrade
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.messages import ConsumerHeartbeatRequest, ConsumerHeartbeatResponse
from coordinator.group.messages import HeartbeatRequest, JoinRequest, JoinResponse, LeaveRequest, LeavingMember
from coordinator.log import Record
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import RANGE, SESSION_MS, Harness, Parked, reloaded

SIZE = 10
LATER = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each member is a slice."""
    monkeypatch.setattr(slices, "SLICE_UNITS", 1)
    monkeypatch.setattr(downgrade, "AT_ONCE", SIZE - 3)
    monkeypatch.setattr(downgrade, "PART_RECORDS", 3)


def with_a_consumer(h: Harness) -> list[str]:
    """The classic members; "m" is the one of the consumer protocol."""
    joins = [h.join() for _ in range(SIZE)]
    h.advance(0)
    members = [parked.answer.member_id for parked in joins]
    for member in members:
        h.sync(member, 1, dict.fromkeys(members, b""))
    assert h.consumer_heartbeat("m").answer.error is ErrorCode.NONE
    return members


def send(h: Harness, member_id: str, epoch: int) -> Parked[ConsumerHeartbeatResponse]:
    """A heartbeat, without further work of the coordinator."""
    parked = Parked[ConsumerHeartbeatResponse]()
    request = ConsumerHeartbeatRequest(
        "g", member_id, epoch, "c", "/127.0.0.1", rebalance_timeout_ms=1_000, subscribed_topic_names=["t"], owned={}
    )
    h.coordinator.consumer_heartbeat(request, h.now_ms, parked)
    return parked


def leave(h: Harness, member_id: str = "m") -> Parked[ConsumerHeartbeatResponse]:
    return send(h, member_id, -1)


def join(h: Harness, member_id: str) -> Parked[JoinResponse]:
    parked = Parked[JoinResponse]()
    request = JoinRequest("g", member_id, "c", "/127.0.0.1", SESSION_MS, SESSION_MS, "consumer", RANGE)
    h.coordinator.join(request, h.now_ms, parked)
    return parked


def heartbeat(h: Harness, member_id: str, generation: int = 2) -> ErrorCode:
    return h.coordinator.heartbeat(HeartbeatRequest("g", generation, member_id), h.now_ms)


def test_it_goes_on_in_slices() -> None:
    h = Harness()
    members = with_a_consumer(h)
    h.auto = False
    left = leave(h)
    steps, records = 0, []
    while h.coordinator.has_work:
        before = len(h.log.waiting)
        h.coordinator.work()
        records.append(sum(len(some) for some, _ in h.log.waiting[before:]))
        steps += 1
        assert h.coordinator.describe_group("g").state == "Dead", "it is still a consumer group"
        assert (heartbeat(h, members[0]), join(h, members[0]).answer.error) == (ErrorCode.NONE, LATER)
        assert send(h, "n", 0).answer.error is LATER
    assert steps > 2 * SIZE and max(records) <= 4
    assert not left.answers
    h.finish_all()
    assert left.answer.error is ErrorCode.NONE
    for each in (h, reloaded(h)):
        described = each.coordinator.describe_group("g")
        assert [member.member_id for member in described.members] == members
    assert heartbeat(h, members[0]) is ErrorCode.REBALANCE_IN_PROGRESS


def test_who_leaves_meanwhile_is_not_in_the_new_group() -> None:
    h = Harness()
    members = with_a_consumer(h)
    leave(h)
    h.coordinator.work()
    leaving = LeaveRequest("g", [LeavingMember(members[1]), LeavingMember("nobody")])
    assert h.coordinator.leave(leaving, h.now_ms).member_errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    h.finish_all()
    described = h.coordinator.describe_group("g")
    assert [member.member_id for member in described.members] == [*members[:1], *members[2:]]


def test_sessions_that_end_meanwhile_start_again() -> None:
    h = Harness()
    members = with_a_consumer(h)
    h.auto = False
    leave(h)
    h.coordinator.work()
    h.now_ms += SESSION_MS + 1
    h.coordinator.tick(h.now_ms)
    h.finish_all()
    assert len(h.coordinator.describe_group("g").members) == SIZE
    h.auto = True
    h.advance(SESSION_MS - 1)
    assert len(h.coordinator.describe_group("g").members) == SIZE
    for member in members[1:]:
        heartbeat(h, member)
    h.advance(1)
    assert len(h.coordinator.describe_group("g").members) == SIZE - 1


def test_a_silent_member_of_the_consumer_protocol() -> None:
    h = Harness()
    members = with_a_consumer(h)
    for _ in range(5):
        h.advance(SESSION_MS - 1)
        for member in members:
            heartbeat(h, member, 1)
    assert h.coordinator.describe_group("g").state == "PreparingRebalance"


def test_a_group_that_no_record_can_hold_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    h = Harness()
    members = with_a_consumer(h)
    monkeypatch.setattr(h.log, "max_record_bytes", 200)
    left = leave(h)
    h.coordinator.leave(LeaveRequest("g", [LeavingMember(members[1])]), h.now_ms)
    h.finish_all()
    assert left.answer.error is ErrorCode.NONE
    group = h.coordinator._groups["g"]
    assert isinstance(group, ConsumerGroup)
    assert [*group.members] == [*members[:1], *members[2:]]
    monkeypatch.setattr(h.log, "max_record_bytes", 10_000)
    assert join(h, members[0]).answers == []
    h.finish_all()


@pytest.mark.parametrize("steps", [0, 5, 100])
def test_a_coordinator_that_resigns_meanwhile_answers(steps: int) -> None:
    h = Harness()
    with_a_consumer(h)
    left = leave(h)
    for _ in range(steps):
        h.coordinator.work()
    h.coordinator.resign(h.now_ms)
    h.finish_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert left.answer.error is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("at_once", [0, SIZE])
def test_a_group_that_has_just_become_a_consumer_group(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tombstone of the first classic group is in flight, and does not remove the second one."""
    monkeypatch.setattr(downgrade, "AT_ONCE", at_once)
    h = Harness()
    joins = [h.join() for _ in range(3)]
    h.advance(0)
    members = [parked.answer.member_id for parked in joins]
    for member in members:
        h.sync(member, 1, dict.fromkeys(members, b""))
    h.auto = False
    send(h, "m", 0)
    leave(h)
    h.finish_all()
    for each in (h, reloaded(h)):
        assert [member.member_id for member in each.coordinator.describe_group("g").members] == members


def test_a_log_that_ends_in_the_midst_of_it_has_all_members() -> None:
    """What is left of the consumer group does not come back later."""
    h = Harness()
    members = with_a_consumer(h)
    before = len(h.log.durable)
    leave(h)
    h.finish_all()
    everything = [*h.log.durable]
    for end in range(before, len(everything)):
        cut = Harness()
        cut.log.durable = everything[:end]
        loaded = reloaded(cut)
        loaded.finish_all()
        described = loaded.coordinator.describe_group("g").members
        if end == before:
            assert len(loaded.coordinator.describe_consumer_group("g").members) == SIZE + 1
            continue
        assert [member.member_id for member in described] == members
        for member in members:
            loaded.leave(member)
        loaded.finish_all()
        again = reloaded(loaded).coordinator
        assert not again.describe_group("g").members and not again.describe_consumer_group("g").members


def test_records_that_the_log_has_not_yet_get_tombstones_before_that_of_the_group() -> None:
    h = Harness()
    with_a_consumer(h)
    h.auto = False
    h.consumer_heartbeat("n")
    leave(h, "n")
    leave(h)
    h.finish_all()
    assert len(reloaded(h).coordinator.describe_group("g").members) == SIZE
    tombstones = [key for key, value in h.log.durable if value is None]
    assert Record(tombstones[-1], None) == [*ConsumerGroup("g", h.log).tombstones()][-1]


def test_a_defect_at_the_end_does_not_keep_the_group_busy() -> None:
    h = Harness()
    with_a_consumer(h)

    def fail(response: ConsumerHeartbeatResponse) -> None:
        raise ZeroDivisionError

    h.coordinator.consumer_heartbeat(ConsumerHeartbeatRequest("g", "m", -1, "c", "/127.0.0.1"), h.now_ms, fail)
    with pytest.raises(ZeroDivisionError):
        h.finish_all()
    assert "g" not in h.coordinator._members._busy
    h.advance(SESSION_MS)
    assert not h.coordinator.describe_group("g").members
