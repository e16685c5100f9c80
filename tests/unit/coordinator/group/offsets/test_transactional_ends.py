"""The end of a transaction with many offsets: several appends, one after the other."""

from collections.abc import Mapping

import pytest

from coordinator import slices
from coordinator.group.messages import (
    CommitRequest,
    EndOfTransaction,
    FetchedOffset,
    OffsetToCommit,
    TransactionalCommitRequest,
)
from coordinator.group.offsets import transactions
from coordinator.topics import TopicPartition
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import Harness, Parked, reloaded
from tests.unit.coordinator.group.offsets.transactional_offsets import T0, UNSTABLE, fetch

Answer = Parked[Mapping[TopicPartition, ErrorCode]]
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


def commits_that_waited(h: Harness, monkeypatch: pytest.MonkeyPatch) -> list[Answer]:
    """Ten of them. The end is durable now, and two commits are a slice."""
    monkeypatch.setattr(slices, "SLICE_UNITS", 4)
    h.end_transaction()
    commits = [h.commit(offset) for offset in range(100, 110)]
    for _ in range(3):
        assert len(h.log.waiting) == 1
        h.log.finish_one(h.now_ms)
    return commits


def test_commits_that_have_waited_go_on_in_slices_and_in_their_order(
    h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be thousands, of thousands of offsets each, for which the event loop would wait."""
    commits = commits_that_waited(h, monkeypatch)
    assert len(h.log.waiting) == 2
    h.coordinator.work()
    assert len(h.log.waiting) == 4
    of_another_group = Answer()
    offsets = {T0: OffsetToCommit(3)}
    h.coordinator.commit_offsets(CommitRequest("another", offsets), h.now_ms, of_another_group)
    assert len(h.log.waiting) == 5, "it waits for nothing"
    commits.append(h.commit(7))
    h.finish_all()
    assert [each.answer for each in (*commits, of_another_group)] == [{T0: ErrorCode.NONE}] * 12
    assert fetch(h, T0, stable=True) == {T0: FetchedOffset(7)}, "the last one counts"
    h.commit(8)
    assert len(h.log.waiting) == 1, "nothing is left of them"


def test_commits_that_have_waited_wait_for_the_next_end_in_their_order(
    h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = commits_that_waited(h, monkeypatch)
    h.coordinator.commit_in_transaction(
        TransactionalCommitRequest("g", {T0: OffsetToCommit(5)}, version=5, producer_id=8, producer_epoch=0),
        h.coordinator.start_verification("g", 8, 0), h.now_ms, Answer(),
    )  # fmt: skip
    while h.log.waiting:
        h.log.finish_one(h.now_ms)
    marker = EndOfTransaction(8, 0, 1, committed=True, transaction_version=1)
    h.coordinator.end_transaction(marker, h.now_ms, Parked[ErrorCode]())
    commits.append(h.commit(7))
    h.finish_all()
    assert [each.answer for each in commits] == [{T0: ErrorCode.NONE}] * 11
    assert fetch(h, T0, stable=True) == {T0: FetchedOffset(7)}


def test_commits_that_have_waited_are_refused_by_a_coordinator_that_resigns(
    h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = commits_that_waited(h, monkeypatch)
    h.coordinator.resign(h.now_ms)
    h.finish_all()
    assert [each.answer for each in commits[:2]] == [{T0: ErrorCode.NONE}] * 2
    assert [each.answer for each in commits[2:]] == [{T0: ErrorCode.NOT_COORDINATOR}] * 8


def test_commits_whose_end_is_lost_after_the_coordinator_has_resigned_are_refused_at_once(
    h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody may let it work any more."""
    monkeypatch.setattr(slices, "SLICE_UNITS", 4)
    h.end_transaction()
    commits = [h.commit(offset) for offset in range(10)]
    h.coordinator.resign(h.now_ms)
    h.finish_all()
    assert not h.coordinator.has_work
    assert [each.answer for each in commits] == [{T0: ErrorCode.NOT_COORDINATOR}] * 10
