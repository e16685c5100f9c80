"""Checkpoints: a leader that begins at one, compared with a leader that has read the whole log."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.log.transactions.aborted_list import AbortedTransaction
from gateway.log.transactions.checkpoint import (
    Checkpoint,
    MalformedCheckpointError,
    decode_checkpoint,
    decode_place,
    encode_checkpoint,
)
from gateway.log.transactions.checkpoints import AGAIN_AFTER_ENTRIES, Checkpoints
from gateway.log.transactions.state import EndedTransaction, OpenTransaction, PartitionTransactions
from gateway.pulsar.position import Position
from protocol.kafka.errors import ErrorCode
from protocol.kafka.transaction_marker import MarkerType, TransactionMarker

HERE = Position(2**40, 7)


@dataclass(frozen=True)
class Batch:
    """A marker takes one offset."""

    producer_id: int
    epoch: int
    marker: MarkerType | None
    count: int


LOGS = st.lists(
    st.builds(
        Batch, st.integers(1, 4), st.integers(0, 2), st.sampled_from([None, None, *MarkerType]), st.integers(1, 3)
    )
)


def read(transactions: PartitionTransactions, log: Sequence[Batch], offset: int) -> int:
    """The offset after the log."""
    for batch in log:
        if batch.marker is None:
            transactions.data_appended(batch.producer_id, batch.epoch, offset)
            offset += batch.count
        else:
            marker = TransactionMarker(batch.marker, batch.producer_id, batch.epoch, 0)
            transactions.marker_appended(marker, offset)
            offset += 1
    return offset


def slowly_aborted(log: Sequence[Batch]) -> tuple[list[tuple[int, int, int]], list[int]]:
    """Aborted transactions (producer id, first and last offset), and the first offsets of open ones."""
    aborted: list[tuple[int, int, int]] = []
    open_: dict[int, int] = {}
    offset = 0
    for batch in log:
        if batch.marker is None:
            open_.setdefault(batch.producer_id, offset)
            offset += batch.count
        else:
            first = open_.pop(batch.producer_id, None)
            if first is not None and batch.marker is MarkerType.ABORT:
                aborted.append((batch.producer_id, first, offset))
            offset += 1
    return aborted, [*open_.values()]


@given(LOGS, st.integers(0, 60), st.integers(0, 10))
def test_against_a_simple_reference(log: list[Batch], fetch_offset: int, length: int) -> None:
    transactions = PartitionTransactions()
    end = read(transactions, log, 0)
    aborted, open_ = slowly_aborted(log)
    assert transactions.last_stable_offset(end) == min(open_, default=end)
    upper = fetch_offset + length
    expected = [each for each in aborted if each[2] >= fetch_offset and each[1] < upper]
    found = [each[:3] for each in transactions.aborted_between(fetch_offset, upper)]
    assert found == sorted(expected, key=lambda each: each[1])


@given(LOGS, LOGS, st.integers(0, 30), st.integers(0, 10))
def test_a_leader_that_begins_at_a_checkpoint(
    before: list[Batch], behind: list[Batch], ahead: int, length: int
) -> None:
    whole = PartitionTransactions()
    middle = read(whole, before, 0)
    text = encode_checkpoint(Checkpoint(HERE, middle, dict(whole.open)))
    older = whole.aborted_between(0, middle)
    end = read(whole, behind, middle)

    checkpoint = decode_checkpoint(text)
    assert (checkpoint.position, checkpoint.offset) == (HERE, middle)
    later = checkpoint.transactions()
    assert read(later, behind, checkpoint.offset) == end
    assert later.last_stable_offset(end) == whole.last_stable_offset(end)
    fetch = middle + ahead
    assert later.aborted_between(fetch, fetch + length) == whole.aborted_between(fetch, fetch + length)
    later.add_older(sorted(older, key=lambda each: each.last_offset), known_from=0)
    assert later.aborted_between(0, end) == whole.aborted_between(0, end)


def test_what_is_kept_of_open_transactions() -> None:
    open_ = {2**62: OpenTransaction(32_767, 3, 9), 1: OpenTransaction(0, 4, -1)}
    assert decode_checkpoint(encode_checkpoint(Checkpoint(HERE, 5, open_))) == Checkpoint(HERE, 5, open_)


def test_what_is_kept_of_ended_ones() -> None:
    ended = {2**62: EndedTransaction(32_767, 9), 1: EndedTransaction(0, 3)}
    kept = Checkpoint(HERE, 5, {3: OpenTransaction(1, 4)}, (AbortedTransaction(1, 2, 3, 3),), 1, HERE, ended)
    found = decode_checkpoint(encode_checkpoint(kept))
    assert found == kept
    assert [*found.ended] == [2**62, 1]
    late = TransactionMarker(MarkerType.ABORT, 1, 0, 2)
    assert found.transactions().marker_error(late) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_one_of_version_0() -> None:
    """It has no ended transactions."""
    text = (
        "AAAAAQAAAAAAAAAAAAAAAAcAAAAAAAAABQAAAAAAAAAGAAAAAAAAAAUAAAAAAAAAAQAAAAEAAAAAAAAAAQACAAAAAwAAAAAAAAAEAAAAAAAA"
        "AAkAAAAAAAAAAQAAAAAAAAADAAAAAAAAAAI="
    )
    expected = Checkpoint(
        HERE, 5, {1: OpenTransaction(2, 4, 3)}, (AbortedTransaction(9, 1, 3, 2),), 1, Position(6, 5)
    )
    assert decode_checkpoint(text) == expected


def test_the_producers_that_ended_last() -> None:
    transactions = PartitionTransactions()
    for producer_id in (1, 2, 3, 1):
        transactions.marker_appended(TransactionMarker(MarkerType.COMMIT, producer_id, 0, 4), 9)
    assert transactions.last_ended(2) == {3: (0, 4), 1: (0, 4)}
    assert [*transactions.last_ended(5)] == [2, 3, 1]


GOOD = encode_checkpoint(Checkpoint(HERE, 5, {1: OpenTransaction(0, 4)}))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no base64",
        "é",
        GOOD[:-4],
        "Ag" + GOOD[2:],
        encode_checkpoint(Checkpoint(HERE, 5, {1: OpenTransaction(0, 5)})),
        encode_checkpoint(Checkpoint(HERE, -1, {})),
    ],
)
def test_what_is_no_checkpoint(text: str) -> None:
    with pytest.raises(MalformedCheckpointError):
        decode_checkpoint(text)


def test_a_place_without_its_transactions() -> None:
    """These are not decoded: there may be very many."""
    whole = Checkpoint(
        HERE, 90, {1: OpenTransaction(0, 5)}, (AbortedTransaction(2, 30, 40, 5),), 20, Position(2, 3),
        {3: EndedTransaction(0, 1)},
    )  # fmt: skip
    assert decode_place(encode_checkpoint(whole)) == whole._replace(open={}, aborted=(), ended={})


@pytest.mark.parametrize("text", ["", "no base64", "é", "Ag" + GOOD[2:], encode_checkpoint(Checkpoint(HERE, -1, {}))])
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(MalformedCheckpointError):
        decode_place(text)


def test_one_that_does_not_fit_is_not_made_for_each_entry() -> None:
    """With very many open transactions it takes long to make."""
    checkpoints, made = Checkpoints(), 0

    def make(kept: Checkpoint | None) -> Checkpoint:
        nonlocal made
        made += 1
        return Checkpoint(HERE, 1, {producer_id: OpenTransaction(0, 0) for producer_id in range(100)})

    for room_bytes in (0, *range(1_000, 1_100)):
        assert checkpoints.next_tag(1, room_bytes, make).checkpoint is None
    assert made == 1
    assert checkpoints.next_tag(1, 10_000, make).checkpoint is not None


def test_one_that_did_not_fit_may_be_smaller_later() -> None:
    checkpoints, count = Checkpoints(), 100

    def make(kept: Checkpoint | None) -> Checkpoint:
        return Checkpoint(HERE, 1, {producer_id: OpenTransaction(0, 0) for producer_id in range(count)})

    assert checkpoints.next_tag(1, 1_000, make).checkpoint is None
    count = 0
    assert any(checkpoints.next_tag(1, 1_000, make).checkpoint is not None for _ in range(AGAIN_AFTER_ENTRIES))
