"""Counting base offsets: a model of a Pulsar log with several writers, and the order in which one of them learns of
entries."""

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.log.bounds.log_end import UNKNOWN_OFFSET, LogEnd, Receipt, Resolved
from gateway.pulsar.position import Position

NOTHING = Position(-1, -1)


class Written(NamedTuple):
    position: Position
    base_offset: int
    offset_count: int
    ours: bool


class LogEndMachine(RuleBasedStateMachine):
    """The broker appends; receipts of our entries arrive in order, entries are read in order, each at any later time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.written: list[Written] = []
        self.ledger_id, self.entry_id, self.next_offset = 5, 0, 0
        self.resolved: dict[Position, list[int]] = {}
        self.receipts = 0
        """The number of our entries that are acknowledged."""
        self.read = 0
        """The number of entries that have been read or skipped."""
        self.passed_over = False
        self.end = LogEnd[Written](NOTHING, 0)

    @rule(count=st.integers(1, 100), ours=st.booleans())
    def write(self, count: int, ours: bool) -> None:
        self.written.append(Written(Position(self.ledger_id, self.entry_id), self.next_offset, count, ours))
        self.entry_id += 1
        self.next_offset += count

    @rule(lost_offsets=st.integers(0, 3), ledgers=st.integers(1, 3))
    def roll_over(self, lost_offsets: int, ledgers: int) -> None:
        """A new ledger; markers and failed entries may have used indexes."""
        self.ledger_id += ledgers
        self.entry_id = 0
        self.next_offset += lost_offsets

    @property
    def own(self) -> list[Written]:
        return [entry for entry in self.written if entry.ours]

    @precondition(lambda self: self.receipts < len(self.own))
    @rule()
    def receive(self) -> None:
        entry = self.own[self.receipts]
        self.receipts += 1
        if entry.position not in self.resolved:
            self.resolved[entry.position] = []
            self._note(self.end.on_receipt(Receipt(entry.position, entry.offset_count, entry)))

    def _note(self, resolved: list[Resolved[Written]]) -> None:
        for receipt, base_offset in resolved:
            assert receipt.position == receipt.sent.position
            self.resolved[receipt.position].append(base_offset)

    @precondition(lambda self: self.read < len(self.written))
    @rule()
    def read_next(self) -> None:
        entry = self.written[self.read]
        self.read += 1
        known = entry.position <= self.end.last
        before = self.end.last
        self._note(self.end.on_entry(entry.position, entry.base_offset, entry.base_offset + entry.offset_count))
        assert (self.end.last > before) is not known
        if entry.ours and entry.position not in self.resolved:
            self.resolved[entry.position] = [entry.base_offset]  # its receipt is no longer of interest

    @precondition(lambda self: self.read < len(self.written))
    @rule()
    def read_from_the_end(self) -> None:
        """The follower starts again after the known end."""
        while self.read < len(self.written) and self.written[self.read].position <= self.end.last:
            self.read += 1

    @precondition(lambda self: self.read < len(self.written))
    @rule()
    def pass_over(self) -> None:
        """A new follower is after an entry that was written while it was opened."""
        self.passed_over = True
        self.read += 1

    @precondition(lambda self: self.end.unresolved)
    @rule()
    def look_up(self) -> None:
        """The broker holds the entry back: an open transaction of another writer precedes it."""
        first, before = self.end.first_unresolved, self.end.last
        assert first is not None
        self._note(self.end.on_held_back(first, first.sent.base_offset))
        assert self.end.last == before

    @precondition(lambda self: self.written)
    @rule()
    def look_ahead(self) -> None:
        """A new leader looks up what is held back."""
        last = self.written[-1]
        self.end.written_ahead(last.position, last.base_offset + last.offset_count)

    @invariant()
    def offsets_are_right(self) -> None:
        unknown = [[UNKNOWN_OFFSET]] if self.passed_over else []
        for entry in self.own[: self.receipts]:
            assert self.resolved[entry.position] in ([], [entry.base_offset], *unknown)

    @invariant()
    def the_end_is_the_end_of_some_entry(self) -> None:
        ends = {entry.position: entry.base_offset + entry.offset_count for entry in self.written}
        if self.end.last != NOTHING:
            assert self.end.next_offset == ends[self.end.last]
        assert self.end.written_offset in {self.end.next_offset, *ends.values()}
        assert self.end.is_held_back is (self.end.written_offset > self.end.next_offset)

    @invariant()
    def what_waits_is_what_is_not_resolved(self) -> None:
        confirmed = self.own[: self.receipts]
        assert self.end.unresolved is any(not self.resolved[entry.position] for entry in confirmed)

    def teardown(self) -> None:
        """When everything is acknowledged and read, everything is resolved."""
        while self.receipts < len(self.own):
            self.receive()
        self.write(1, ours=False)
        while self.read < len(self.written):
            self.read_next()
        assert not self.end.unresolved
        self.offsets_are_right()
        assert all(len(self.resolved[entry.position]) == 1 for entry in self.own)
        if self.written:
            last = self.written[-1]
            assert (self.end.last, self.end.next_offset) == (last.position, last.base_offset + last.offset_count)


LogEndMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestLogEnd = LogEndMachine.TestCase


def offsets_of(resolved: list[Resolved[None]]) -> list[int]:
    return [base_offset for _, base_offset in resolved]


def test_receipts_that_follow_are_counted() -> None:
    end, offsets = LogEnd[None](Position(1, 4), 100), list[int]()
    for entry_id in (5, 6, 7):
        offsets += offsets_of(end.on_receipt(Receipt(Position(1, entry_id), 10, None)))
    assert offsets == [100, 110, 120]
    assert (end.last, end.next_offset) == (Position(1, 7), 130)


def test_a_receipt_behind_a_gap_waits_and_holds_back_those_behind_it() -> None:
    end, offsets = LogEnd[None](Position(1, 4), 100), list[int]()
    offsets += offsets_of(end.on_receipt(Receipt(Position(1, 6), 10, None)))
    offsets += offsets_of(end.on_receipt(Receipt(Position(1, 7), 10, None)))
    assert end.unresolved
    assert offsets == []
    offsets += offsets_of(end.on_entry(Position(1, 5), 100, 103))
    assert offsets == [103, 113]


def test_entries_that_were_passed_over_are_counted_back_from_the_next_one() -> None:
    end, offsets = LogEnd[None](Position(1, 4), 100), list[int]()
    for position in (Position(2, 0), Position(3, 0), Position(3, 1)):
        offsets += offsets_of(end.on_receipt(Receipt(position, 10, None)))
    offsets += offsets_of(end.on_entry(Position(3, 2), 150, 151))
    assert offsets == [UNKNOWN_OFFSET, 130, 140]
    offsets += offsets_of(end.on_receipt(Receipt(Position(3, 1), 10, None)))
    assert offsets[3:] == [UNKNOWN_OFFSET]


def test_a_new_ledger_is_never_counted_on() -> None:
    end, offsets = LogEnd[None](Position(1, 4), 100), list[int]()
    offsets += offsets_of(end.on_receipt(Receipt(Position(2, 0), 10, None)))
    assert offsets == []
    offsets += offsets_of(end.on_entry(Position(2, 0), 102, 112))
    assert offsets == [102]


def test_abandoned_receipts_are_handed_back() -> None:
    end = LogEnd[None](Position(1, 4), 100)
    end.on_receipt(Receipt(Position(2, 0), 10, None))
    assert [waiting.position for waiting in end.abandon()] == [Position(2, 0)]
    assert not end.unresolved


def test_what_is_held_back_gets_offsets_but_does_not_move_the_end() -> None:
    end = LogEnd[None](Position(1, 4), 100)
    first, second = Receipt(Position(1, 6), 10, None), Receipt(Position(1, 7), 10, None)
    assert not end.on_receipt(first)
    assert not end.on_receipt(second)
    assert offsets_of(end.on_held_back(first, 103)) == [103, 113]
    assert offsets_of(end.on_receipt(Receipt(Position(1, 8), 10, None))) == [123]
    assert (end.last, end.next_offset, end.written_offset) == (Position(1, 4), 100, 133)
    end.on_entry(Position(1, 5), 100, 103)
    assert (end.last, end.next_offset, end.is_held_back) == (Position(1, 8), 133, False)


def test_the_end_does_not_pass_another_transaction() -> None:
    """Brokers may hold back what a new leader has looked up for longer than what precedes it."""
    end = LogEnd[None](Position(1, 4), 100)
    end.written_ahead(Position(1, 6), 106)
    assert offsets_of(end.on_receipt(Receipt(Position(1, 7), 10, None))) == [106]
    end.on_entry(Position(1, 5), 100, 103)
    assert (end.last, end.next_offset, end.written_offset) == (Position(1, 5), 103, 116)
    end.on_entry(Position(1, 6), 103, 106)
    assert (end.last, end.next_offset) == (Position(1, 7), 116)
