"""Open and aborted transactions of a partition, and the last stable offset."""

import pytest

from gateway.log.transactions import state
from gateway.log.transactions.aborted_list import AbortedTransaction
from gateway.log.transactions.state import OpenTransaction, PartitionTransactions
from protocol.kafka.errors import ErrorCode
from protocol.kafka.transaction_marker import MarkerType, TransactionMarker


def marker(
    type_: MarkerType = MarkerType.COMMIT, producer_id: int = 1, epoch: int = 0, coordinator: int = 5
) -> TransactionMarker:
    return TransactionMarker(type_, producer_id, epoch, coordinator)


ABORT = MarkerType.ABORT


def test_the_oldest_open_transaction_holds_back() -> None:
    t = PartitionTransactions()
    assert t.last_stable_offset(10) == 10
    t.data_appended(1, 0, 10)
    t.data_appended(2, 0, 12)
    t.data_appended(1, 0, 13)
    assert t.last_stable_offset(14) == 10
    t.marker_appended(marker(producer_id=1), 14)
    assert t.last_stable_offset(15) == 12
    t.data_appended(1, 0, 15)
    t.marker_appended(marker(producer_id=2), 16)
    assert t.last_stable_offset(17) == 15
    t.marker_appended(marker(producer_id=1), 17)
    assert t.last_stable_offset(18) == 18


def interleaved() -> PartitionTransactions:
    """1 from 0 to 5, aborted; 2 from 1 to 9, aborted; 3 from 6 to 7, committed; 4 from 8 to 11, aborted."""
    t = PartitionTransactions()
    t.data_appended(1, 0, 0)
    t.data_appended(2, 0, 1)
    t.marker_appended(marker(ABORT, 1), 5)
    t.data_appended(3, 0, 6)
    t.marker_appended(marker(producer_id=3), 7)
    t.data_appended(4, 0, 8)
    t.marker_appended(marker(ABORT, 2), 9)
    t.marker_appended(marker(ABORT, 4), 11)
    return t


FIRST = AbortedTransaction(1, 0, 5, 1)
SECOND = AbortedTransaction(2, 1, 9, 8)
FOURTH = AbortedTransaction(4, 8, 11, 12)


@pytest.mark.parametrize(
    ("fetch_offset", "upper_offset", "found"),
    [
        (0, 12, [FIRST, SECOND, FOURTH]),
        (0, 1, [FIRST]),
        (0, 2, [FIRST, SECOND]),
        (5, 6, [FIRST, SECOND]),
        (6, 12, [SECOND, FOURTH]),
        (10, 12, [FOURTH]),
        (12, 20, []),
        (3, 3, [FIRST, SECOND]),
    ],
)
def test_what_was_aborted(fetch_offset: int, upper_offset: int, found: list[AbortedTransaction]) -> None:
    assert interleaved().aborted_between(fetch_offset, upper_offset) == found


def test_they_are_listed_as_they_began() -> None:
    t = PartitionTransactions()
    t.data_appended(1, 0, 0)
    t.data_appended(2, 0, 1)
    t.marker_appended(marker(ABORT, 2), 2)
    t.marker_appended(marker(ABORT, 1), 3)
    assert [each.producer_id for each in t.aborted_between(0, 4)] == [1, 2]


def test_a_marker_that_ends_nothing() -> None:
    t = PartitionTransactions()
    t.marker_appended(marker(ABORT), 0)
    assert t.aborted_between(0, 1) == []
    assert t.last_stable_offset(1) == 1


# Markers that are refused


def test_markers_of_the_past() -> None:
    t = PartitionTransactions()
    t.data_appended(1, 3, 0)
    assert t.marker_error(marker(epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert t.marker_error(marker(epoch=3)) is ErrorCode.NONE
    assert t.marker_error(marker(epoch=4)) is ErrorCode.NONE
    t.marker_appended(marker(epoch=3, coordinator=5), 1)
    assert t.marker_error(marker(epoch=3, coordinator=4)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert t.marker_error(marker(epoch=3, coordinator=5)) is ErrorCode.NONE, "its coordinator asks again"
    t.data_appended(1, 3, 2)
    assert t.marker_error(marker(epoch=3, coordinator=4)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert t.marker_error(marker(producer_id=2, coordinator=0)) is ErrorCode.NONE


def test_a_late_marker_of_the_transaction_before() -> None:
    """KAFKA-19999: in transactions of version 2 a marker's epoch is not that of batches."""
    t = PartitionTransactions()
    t.data_appended(1, 0, 0)
    assert t.marker_error(marker(epoch=0), 2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert t.marker_error(marker(epoch=1), 2) is ErrorCode.NONE
    t.marker_appended(marker(epoch=1), 1)
    assert t.marker_error(marker(epoch=1), 2) is ErrorCode.NONE, "nothing is open"
    t.data_appended(1, 1, 2)
    assert t.marker_error(marker(epoch=1), 2) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_what_ended_producers_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_ENDED_PRODUCERS", 2)
    t = PartitionTransactions()
    for producer_id in (1, 2, 1, 3):
        t.marker_appended(marker(producer_id=producer_id), 0)
    assert t.marker_error(marker(producer_id=2, coordinator=0)) is ErrorCode.NONE
    assert t.marker_error(marker(producer_id=1, coordinator=0)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


# Records are deleted


def test_the_stable_offset_is_never_below_the_start() -> None:
    t = PartitionTransactions()
    t.data_appended(1, 0, 2)
    t.start_moved(5)
    assert t.last_stable_offset(9) == 5
    assert t.open[1].first_offset == 2, "its marker is still to come"
    t.marker_appended(marker(ABORT), 9)
    assert t.last_stable_offset(10) == 10
    assert [each.last_offset for each in t.aborted_between(5, 10)] == [9]


def test_abort_markers_before_the_start_are_forgotten() -> None:
    t = interleaved()
    t.start_moved(9)
    assert t.aborted_between(9, 12) == [SECOND, FOURTH]
    with pytest.raises(ValueError, match="known from 9"):
        t.aborted_between(8, 12)


# Older abort markers


def test_a_state_that_began_at_a_checkpoint() -> None:
    t = PartitionTransactions({4: OpenTransaction(0, 8), 2: OpenTransaction(0, 1)}, aborted_from=9)
    assert [*t.open] == [2, 4]
    assert t.last_stable_offset(9) == 1
    t.marker_appended(marker(ABORT, 2), 9)
    t.marker_appended(marker(ABORT, 4), 11)
    assert t.aborted_between(9, 12) == [SECOND, FOURTH]
    with pytest.raises(ValueError, match="known from 9"):
        t.aborted_between(8, 12)
    t.add_older([FIRST], known_from=0)
    assert t.aborted_between(0, 12) == [FIRST, SECOND, FOURTH]


def test_few_abort_markers_are_kept() -> None:
    t = interleaved()
    t.keep_aborted(5, told_below=12)
    assert t.aborted_from == 0
    t.keep_aborted(1, told_below=FIRST.last_offset)
    assert t.aborted_from == 0
    t.keep_aborted(1, told_below=12)
    assert t.aborted_from == 10
    assert t.aborted_between(10, 12) == [FOURTH]
    t.add_older([FIRST, SECOND], known_from=0)
    assert t.aborted_between(0, 12) == [FIRST, SECOND, FOURTH]


def test_older_ones_that_were_deleted_meanwhile() -> None:
    t = interleaved()
    t.keep_aborted(1, told_below=12)
    t.start_moved(7)
    t.add_older([FIRST, SECOND], known_from=0)
    assert t.aborted_from == 7
    assert t.aborted_between(7, 12) == [SECOND, FOURTH]
