"""What was aborted long ago, read checkpoint by checkpoint, compared with a state that has read the whole log."""

from __future__ import annotations

import random

import pytest

from gateway.log.transactions import past_aborted
from gateway.log.transactions.aborted_list import AbortedTransaction
from gateway.log.transactions.checkpoint import NO_ENTRY, Checkpoint
from gateway.log.transactions.past_aborted import PastAborted
from gateway.log.transactions.state import PartitionTransactions
from gateway.pulsar.position import Position
from protocol.kafka.transaction_marker import MarkerType, TransactionMarker


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_aborted, "MAX_ABORTED", 5)
    monkeypatch.setattr(past_aborted, "LOOKED_AT", 2)


class GrowingLog:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.whole, self.memory = PartitionTransactions(), PartitionTransactions()
        self.past = PastAborted(NO_ENTRY)
        self.end_offset = 0
        self.checkpoints: dict[Position, Checkpoint] = {}
        self.newest = NO_ENTRY

    def grow(self) -> None:
        producer_id, ends = self.chance.randint(1, 4), self.chance.random() < 0.5
        kind = self.chance.choice([MarkerType.ABORT, MarkerType.ABORT, MarkerType.COMMIT])
        for state in (self.whole, self.memory):
            if ends:
                state.marker_appended(TransactionMarker(kind, producer_id, 0, 0), self.end_offset)
            else:
                state.data_appended(producer_id, 0, self.end_offset)
        self.end_offset += 1
        if self.chance.random() < 0.2:
            self.write_checkpoint()
        if self.chance.random() < 0.05 and self.checkpoints:
            self.forget()

    def write_checkpoint(self) -> None:
        before, entry = self.newest, Position(1, self.end_offset)
        since = self.checkpoints[before].offset if self.checkpoints else 0
        aborted = tuple(self.whole.aborted_from_to(since, self.end_offset))
        position = entry._replace(entry_id=entry.entry_id - 1)
        self.checkpoints[entry] = Checkpoint(
            position, self.end_offset, dict(self.whole.open), aborted, since, before
        )  # fmt: skip
        self.newest = entry

    def forget(self) -> None:
        """Remove old ones from memory."""
        before = self.memory.aborted_from
        self.memory.keep_aborted(self.chance.randint(0, 3), told_below=self.checkpoints[self.newest].offset)
        if self.memory.aborted_from != before:
            self.past.extended(self.newest)

    def read(self, offset: int) -> int:
        """Read checkpoints, while the log grows, until something is known from this offset on. Returns up to where."""
        for _ in range(10 * len(self.checkpoints) + 10):
            if offset >= self.memory.aborted_from:
                return self.end_offset
            if self.past.known_to(offset) > offset:
                return min(self.past.known_to(offset), self.end_offset)
            entry = self.past.wanted(offset)
            if entry == NO_ENTRY:
                self.past.ended(NO_ENTRY, self.memory.aborted_from)
            else:
                self.past.found(entry, self.checkpoints[entry], offset)
            if self.chance.random() < 0.3:
                self.grow()
        raise AssertionError(f"what was aborted from {offset} on is not known")

    def aborted_between(self, offset: int, upper_offset: int) -> set[AbortedTransaction]:
        from_offset = max(offset, self.memory.aborted_from)
        found = self.memory.aborted_between(from_offset, upper_offset)
        return {*found, *(self.past.between(offset, upper_offset) if offset < from_offset else [])}


@pytest.mark.parametrize("seed", range(100))
def test_against_a_state_that_has_read_everything(seed: int) -> None:
    log = GrowingLog(random.Random(seed))
    for _ in range(60):
        for _ in range(log.chance.choice([1, 5, 30])):
            log.grow()
        offset = log.chance.randrange(log.end_offset)
        for _ in range(log.chance.choice([1, 3])):
            upper_offset = log.read(offset)
            found = log.aborted_between(offset, upper_offset)
            assert found == {*log.whole.aborted_between(offset, upper_offset)}
            if upper_offset >= log.end_offset:
                break
            assert upper_offset > offset
            offset = upper_offset


@pytest.mark.parametrize("seed", range(20))
def test_what_is_in_memory_is_counted_once(seed: int) -> None:
    """Otherwise it seems to be too much, and is removed although readers need it again."""
    log = GrowingLog(random.Random(seed))
    for _ in range(60):
        for _ in range(log.chance.choice([1, 5, 30])):
            log.grow()
        log.read(log.chance.randrange(log.end_offset))
        assert log.past._count == sum(map(len, log.past._aborted.values()))


def test_a_reader_from_the_beginning_reads_each_checkpoint_about_twice() -> None:
    log = GrowingLog(random.Random(1))
    while len(log.checkpoints) < 500:
        log.grow()
    log.forget()
    offset = read = 0
    while offset < log.memory.aborted_from:
        while log.past.known_to(offset) <= offset:
            entry = log.past.wanted(offset)
            if entry == NO_ENTRY:
                log.past.ended(NO_ENTRY, log.memory.aborted_from)
                continue
            log.past.found(entry, log.checkpoints[entry], offset)
            read += 1
        offset = log.past.known_to(offset)
    assert read < 1_200
