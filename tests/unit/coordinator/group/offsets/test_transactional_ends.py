"""The end of a transaction with many offsets: several appends, one after the other."""

import pytest

from coordinator.group.messages import FetchedOffset, OffsetToCommit
from coordinator.group.offsets import transactions
from coordinator.topics import TopicPartition
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import Harness, reloaded
from tests.unit.coordinator.group.offsets.transactional_offsets import T0, UNSTABLE, fetch

PARTITIONS = [TopicPartition("t", number) for number in range(5)]


@pytest.fixture
def h(monkeypatch: pytest.MonkeyPatch) -> Harness:
    """A transaction with five offsets is open. Two of them end in one append, which the test finishes."""
    monkeypatch.setattr(transactions, "PART_OFFSETS", 2)
    harness = Harness()
    harness.commit_in_transaction(offsets=dict.fromkeys(PARTITIONS, OffsetToCommit(7)))
    harness.auto = False
    return harness


def ended(h: Harness) -> list[FetchedOffset]:
    return [*fetch(h, *PARTITIONS, stable=True).values()]


def test_many_offsets_end_in_several_appends(h: Harness) -> None:
    """Each append is a step of the event loop. The marker is answered after the last one, and remembered with it."""
    end, again, before = h.end_transaction(), h.end_transaction(), len(h.log.durable)
    for count in (2, 4):
        h.log.finish_one(h.now_ms)
        assert ended(h) == [FetchedOffset(7)] * count + [UNSTABLE] * (5 - count)
        assert h.commit_in_transaction(8).answer == {T0: ErrorCode.CONCURRENT_TRANSACTIONS}
        assert not end.answers
        assert not again.answers
    plain = h.commit(9)
    h.log.finish_one(h.now_ms)
    assert end.answer is again.answer is ErrorCode.NONE
    assert len(h.log.durable) - before == 5 + 5 + 1
    h.log.finish_one(h.now_ms)
    assert plain.answer == {T0: ErrorCode.NONE}, "a commit waits for the whole end"
    assert fetch(h, T0, stable=True) == {T0: FetchedOffset(9)}


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_an_end_that_is_cut_short_is_completed_by_the_next_marker(h: Harness, error: ErrorCode) -> None:
    end = h.end_transaction()
    h.log.finish_one(h.now_ms)
    h.log.finish_one(h.now_ms, error)
    assert end.answer is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not h.log.waiting
    for coordinator in (h, reloaded(h)):
        coordinator.auto = True
        assert coordinator.end_transaction().answer is ErrorCode.NONE
        assert ended(coordinator) == [FetchedOffset(7)] * 5


def test_a_coordinator_that_resigns_writes_no_further_part_of_an_end(h: Harness) -> None:
    """It does not know the groups any more: it would remove pending offsets without committing them."""
    end = h.end_transaction()
    h.coordinator.resign(h.now_ms)
    h.log.finish_one(h.now_ms)
    assert end.answer is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not h.log.waiting
    after = reloaded(h)
    assert after.end_transaction().answer is ErrorCode.NONE
    assert ended(after) == [FetchedOffset(7)] * 5
