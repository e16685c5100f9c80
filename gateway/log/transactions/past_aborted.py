"""The transactions of a log that were aborted before those in memory, by the checkpoints that have them.

The checkpoints form a chain, from the newest one back. Once it was followed, the places of the checkpoints stay in
memory, but the aborted transactions of a few only: those that were read last. So a reader of old data needs one
checkpoint after the other, however many follow, and however fast the log grows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gateway.log.transactions.aborted_list import AbortedTransaction
from gateway.log.transactions.checkpoint import NO_ENTRY, Checkpoint
from gateway.pulsar.position import Position

MAX_ABORTED = 25_000
"""Aborted transactions of one log in memory; more if one read needs more."""
LOOKED_AT = 64
"""Checkpoints that one read uses at most, unless it needs more. Each covers 4 MB, if the entries are large."""
EVERYTHING = 2**63
"""Higher than all offsets."""


class _Part(NamedTuple):
    """A checkpoint with the aborted transactions whose markers lie from `from_offset` on and below `to_offset`.

    A transaction with a record below `decided_offset` has no marker from `to_offset` on.
    """

    entry: Position
    from_offset: int
    to_offset: int
    decided_offset: int
    is_empty: bool


class PastAborted:
    def __init__(self, newest: Position) -> None:
        """The checkpoint in the entry ``newest`` has those that were aborted directly before those in memory."""
        self._parts: list[_Part] = []
        """The chain as far as it was followed, the newest part first."""
        self._aborted: OrderedDict[Position, Sequence[AbortedTransaction]] = OrderedDict()
        """Those of some parts, by the parts' entries, the last used at the end."""
        self._count = 0
        self._oldest: Sequence[AbortedTransaction] = ()
        """Those before the chain."""
        self._next = newest
        """The entry that continues the chain."""
        self._newer: list[_Part] = []
        """Parts after the chain, the newest first; they are not connected with it yet."""
        self._newer_next: Position | None = None
        """The entry that continues them. None if the chain reaches to what is in memory."""

    def extended(self, newest: Position) -> None:
        """Some that were in memory are not any more. This entry's checkpoint has the last of them."""
        self._newer = []
        if self._parts:
            self._newer_next = newest
        else:
            self._next = newest

    # What is known

    def known_to(self, offset: int) -> int:
        """All that were aborted with records from ``offset`` on and below the result are known. It is ``offset`` if
        more has to be read.
        """
        decided, looked_at = offset, 0
        for part in self._from(offset):
            if not self._is_known(part):
                return decided
            decided, looked_at = max(decided, part.decided_offset), looked_at + 1
            if looked_at >= LOOKED_AT and decided > offset:
                return decided
        return decided if self._ends_before(offset) or self._newer_next is not None else EVERYTHING

    def between(self, fetch_offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """Those with a record from `fetch_offset` on and below `upper_offset`, which must be known."""
        found: list[AbortedTransaction] = []
        for part in self._from(fetch_offset):
            aborted = self._oldest if part.entry == NO_ENTRY else self._aborted.get(part.entry, ())
            found += [each for each in aborted if each.first_offset < upper_offset and each.last_offset >= fetch_offset]
            if part.entry in self._aborted:
                self._aborted.move_to_end(part.entry)
            if part.decided_offset >= upper_offset:
                break
        return found

    def _from(self, offset: int) -> Iterator[_Part]:
        """The parts from this offset on, the oldest first; none if the chain does not have the offset."""
        if self._ends_before(offset):
            return
        first = bisect_left(self._parts, -offset, key=_descending)
        for number in range(first, -1, -1):
            yield self._parts[number]

    def _ends_before(self, offset: int) -> bool:
        """Whether the chain was not followed to this offset, or what was in memory there is not connected yet."""
        if not self._parts or self._parts[-1].from_offset > offset:
            return True
        return self._newer_next is not None and self._parts[0].to_offset <= offset

    def _is_known(self, part: _Part) -> bool:
        return part.is_empty or part.entry == NO_ENTRY or part.entry in self._aborted

    # What is read

    def wanted(self, offset: int) -> Position:
        """The entry whose checkpoint has to be read next, to know more from this offset on. `NO_ENTRY` if nothing
        precedes the chain.
        """
        for part in self._from(offset):
            if not self._is_known(part):
                return part.entry
        if self._newer_next is not None and self._parts[-1].from_offset <= offset:
            return self._newer_next
        return self._next

    def found(self, entry: Position, checkpoint: Checkpoint, offset: int) -> None:
        """The checkpoint that was ``wanted`` for this offset."""
        if entry == self._newer_next:
            if not self._newer or checkpoint.aborted_from < self._newer[-1].from_offset:
                self._newer.append(_part(entry, checkpoint))
            self._newer_next = checkpoint.before
            self._connect()
        elif entry == self._next:
            self._next = checkpoint.before
            if not self._parts or checkpoint.aborted_from < self._parts[-1].from_offset:
                self._parts.append(_part(entry, checkpoint))
        self._keep(entry, checkpoint.aborted, offset)

    def _connect(self) -> None:
        first_offset = self._newer[-1].from_offset
        if self._newer_next == NO_ENTRY or first_offset <= self._parts[0].to_offset:
            before = [part for part in self._parts if part.from_offset < first_offset]
            if not before and self._newer_next is not None:
                self._next = self._newer_next
            self._parts = self._newer + before
            self._newer, self._newer_next = [], None

    def ended(
        self, entry: Position, to_offset: int, aborted: Sequence[AbortedTransaction] = (), decided_offset: int = 0
    ) -> None:
        """No checkpoint is left up to this entry. What is in memory begins at ``to_offset``.

        These were aborted there; no transaction was open at ``decided_offset``.
        """
        if self._newer_next is not None and self._newer_next <= entry:
            self._parts, self._newer, self._newer_next = self._newer, [], None
        self._parts = [part for part in self._parts if part.entry > entry and part.entry != NO_ENTRY]
        if self._parts:
            to_offset = self._parts[-1].from_offset
        self._parts.append(_Part(NO_ENTRY, 0, to_offset, decided_offset, not aborted))
        self._oldest, self._next = aborted, NO_ENTRY

    def _keep(self, entry: Position, aborted: Sequence[AbortedTransaction], offset: int) -> None:
        """Keep them in memory, with the others that a read from this offset needs, and those that were used last."""
        if not aborted:
            return
        before = self._aborted.pop(entry, ())  # the chain may be followed again
        self._aborted[entry] = aborted
        self._count += len(aborted) - len(before)
        needed = 1
        for part in self._from(offset):
            if not self._is_known(part):
                break
            if part.entry in self._aborted:
                self._aborted.move_to_end(part.entry)
                needed += 1
        while self._count > MAX_ABORTED and len(self._aborted) > needed:
            self._count -= len(self._aborted.popitem(last=False)[1])


def _part(entry: Position, checkpoint: Checkpoint) -> _Part:
    first_open = min((each.first_offset for each in checkpoint.open.values()), default=checkpoint.offset)
    decided_offset = min(first_open, checkpoint.offset)
    return _Part(entry, checkpoint.aborted_from, checkpoint.offset, decided_offset, not checkpoint.aborted)


def _descending(part: _Part) -> int:
    return -part.from_offset
