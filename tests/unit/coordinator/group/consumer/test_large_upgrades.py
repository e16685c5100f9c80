"""The conversion of a classic group with very many members: the coordinator answers others meanwhile."""

import pytest

from coordinator import slices
from coordinator.group import migration
from coordinator.group.consumer.messages import ConsumerHeartbeatRequest, ConsumerHeartbeatResponse
from coordinator.group.migration import KEPT_MS
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import SESSION_MS, Harness, Parked, reloaded, subscription

SIZE = 10
LATER = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each member is a slice."""
    monkeypatch.setattr(slices, "SLICE_UNITS", 1)
    monkeypatch.setattr(migration, "AT_ONCE", SIZE - 3)


def join(h: Harness, group: str = "g", member_id: str = "m") -> ErrorCode:
    """A member of the consumer protocol, without further work of the coordinator."""
    parked = Parked[ConsumerHeartbeatResponse]()
    request = ConsumerHeartbeatRequest(
        group, member_id, 0, client_id="c", client_host="/127.0.0.1", rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"], owned={},
    )  # fmt: skip
    h.coordinator.consumer_heartbeat(request, h.now_ms, parked)
    while h.log.waiting:
        h.log.finish_one(h.now_ms)
    return parked.answer.error


def stable(h: Harness) -> list[str]:
    joins = [h.join() for _ in range(SIZE)]
    h.advance(0)
    members = [parked.answer.member_id for parked in joins]
    for member in members:
        h.sync(member, 1, dict.fromkeys(members, b""))
    return members


def steps(h: Harness) -> int:
    count = 0
    while h.coordinator.has_work:
        h.coordinator.work()
        count += 1
    return count


def test_it_goes_on_in_slices() -> None:
    h = Harness()
    stable(h)
    assert join(h) is LATER
    assert h.coordinator.describe_group("g").state == "Stable"
    assert join(h) is LATER, "it goes on already"
    assert steps(h) > 3 * SIZE
    assert h.coordinator.describe_group("g").state == "Stable", "it is not in force yet"
    assert join(h) is ErrorCode.NONE
    for each in (h, reloaded(h)):
        assert len(each.coordinator.describe_consumer_group("g").members) == SIZE + 1


def test_it_goes_on_in_slices_if_members_have_sent_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "AT_ONCE_BYTES", 1_000)
    h = Harness()
    h.join(protocols=[("range", subscription(*(f"a-topic-with-a-name-{number}" for number in range(50))))])
    h.advance(0)
    assert join(h) is LATER
    steps(h)
    assert join(h) is ErrorCode.NONE


def test_a_change_of_the_group_lets_it_begin_again() -> None:
    h = Harness()
    members = stable(h)
    assert join(h) is LATER
    for _ in range(SIZE // 2):
        h.coordinator.work()
    h.join(members[1], protocols=[("range", b"\0\0\0\0\0\0\xff\xff\xff\xff")])
    assert h.coordinator.describe_group("g").state == "PreparingRebalance"
    assert not h.coordinator.has_work, "that of the old group ends"
    assert join(h) is LATER
    assert steps(h) > 3 * SIZE
    assert join(h) is ErrorCode.NONE
    described = {each.member_id: each for each in h.coordinator.describe_consumer_group("g").members}
    assert len(described) == SIZE + 1 and described[members[1]].topics == frozenset()


def test_a_change_after_its_end_counts_too() -> None:
    h = Harness()
    members = stable(h)
    assert join(h) is LATER
    steps(h)
    h.leave(members[1])
    assert join(h) is LATER
    steps(h)
    assert join(h) is ErrorCode.NONE
    assert len(h.coordinator.describe_consumer_group("g").members) == SIZE


def test_a_group_that_cannot_be_converted_is_refused_in_the_end() -> None:
    h = Harness()
    for _ in range(SIZE):
        h.join(protocols=[("range", b"no subscription")])
    h.advance(0)
    for _ in range(2):
        assert join(h) is LATER
        steps(h)
        assert join(h) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_log_that_ends_while_it_is_written_has_all_members() -> None:
    h = Harness()
    members = stable(h)
    before = len(h.log.durable)
    join(h)
    steps(h)
    join(h)
    everything = [*h.log.durable]
    for end in range(before, len(everything) + 1):
        cut = Harness()
        cut.log.durable = everything[:end]
        coordinator = reloaded(cut).coordinator
        classic = [each.member_id for each in coordinator.describe_group("g").members]
        consumers = [each.member_id for each in coordinator.describe_consumer_group("g").members]
        assert (classic or [*filter("m".__ne__, consumers)]) == members


def test_what_nobody_comes_back_for_makes_room_for_another_group() -> None:
    h = Harness()
    for group in ("g", "another"):
        for _ in range(SIZE):
            h.join(group=group)
    h.advance(0)
    assert join(h) is LATER
    assert join(h, "another") is LATER
    steps(h)
    assert join(h, "another") is LATER and not h.coordinator.has_work
    h.now_ms += KEPT_MS
    assert KEPT_MS <= SESSION_MS
    assert join(h, "another") is LATER
    assert steps(h) > 3 * SIZE
    assert join(h) is LATER, "its own has made room"
    assert join(h, "another") is ErrorCode.NONE
    h.coordinator.resign(h.now_ms)


def test_one_that_fails_in_a_slice_can_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the defect: it does not keep other groups from being converted."""
    h = Harness()
    stable(h)
    assert join(h) is LATER
    with monkeypatch.context() as defect:
        defect.delattr(h.topics, "unknown")
        with pytest.raises(AttributeError):
            steps(h)
    assert join(h) is LATER
    steps(h)
    assert join(h) is ErrorCode.NONE
