"""The end of a log, and the base offsets of written entries. No I/O: the input is receipts and entries that were read.

A send receipt contains (ledger, entry). If this position directly follows the last known entry, the base offset is the
current end offset. Otherwise another writer wrote in between, or a new ledger began: the receipt waits until the entry
itself, or an adjacent one, has been read with its index. A reader that is opened while entries are written may miss
some of them.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from gateway.pulsar.position import Position

UNKNOWN_OFFSET = -1
"""The base offset of a receipt whose entry will not be read."""

Sent = TypeVar("Sent")


class Receipt(NamedTuple, Generic[Sent]):
    """The broker has written an entry of this gateway with this number of offsets."""

    position: Position
    offset_count: int
    sent: Sent


class Resolved(NamedTuple, Generic[Sent]):
    """A receipt whose base offset is known, or will never be known."""

    receipt: Receipt[Sent]
    base_offset: int


class LogEnd(Generic[Sent]):
    """The last known entry and the offset after it."""

    def __init__(self, last: Position, next_offset: int) -> None:
        self.last = last
        self.next_offset = next_offset
        self._unresolved: list[Receipt[Sent]] = []

    @property
    def unresolved(self) -> bool:
        """Whether a receipt waits for entries to be read."""
        return bool(self._unresolved)

    @property
    def first_unresolved(self) -> Receipt[Sent] | None:
        return self._unresolved[0] if self._unresolved else None

    def on_receipt(self, receipt: Receipt[Sent]) -> list[Resolved[Sent]]:
        """An entry of this gateway was written. Returns the receipts that this resolves, in the order of the log.

        Must not be called for entries that were already read: their offset is known.
        """
        position, last = receipt.position, self.last
        if position.entry_id == last.entry_id + 1 and position.ledger_id == last.ledger_id and not self._unresolved:
            base_offset = self.next_offset  # as `_count`, in place: most receipts directly follow the last entry
            self.last, self.next_offset = position, base_offset + receipt.offset_count
            return [Resolved(receipt, base_offset)]
        if position <= last:  # although the entry was not read
            return [Resolved(receipt, UNKNOWN_OFFSET)]
        self._unresolved.append(receipt)
        return self._count()

    def on_entry(self, position: Position, base_offset: int, next_offset: int) -> list[Resolved[Sent]]:
        """An entry was read; it moves the end if it is new. Returns the resolved receipts, in the log's order."""
        if position <= self.last:
            return []
        resolved = self._passed_over(position, base_offset)
        self.last, self.next_offset = position, next_offset
        if self._unresolved and self._unresolved[0].position == position:
            resolved.append(Resolved(self._unresolved.pop(0), base_offset))
        return resolved + self._count()

    def _passed_over(self, position: Position, base_offset: int) -> list[Resolved[Sent]]:
        """The receipts of missed entries before the entry read; their offsets are counted back from its base offset."""
        passed: list[Resolved[Sent]] = []
        while self._unresolved and self._unresolved[0].position < position:
            passed.append(Resolved(self._unresolved.pop(0), UNKNOWN_OFFSET))
        for number, (receipt, _) in reversed(list(enumerate(passed))):
            if not _follows(position, receipt.position):
                break
            position, base_offset = receipt.position, base_offset - receipt.offset_count
            passed[number] = Resolved(receipt, base_offset)
        return passed

    def abandon(self) -> list[Receipt[Sent]]:
        """Remove and return the receipts that wait."""
        abandoned, self._unresolved = self._unresolved, []
        return abandoned

    def _count(self) -> list[Resolved[Sent]]:
        """The receipts that directly follow the last known entry."""
        counted: list[Resolved[Sent]] = []
        while self._unresolved and _follows(self._unresolved[0].position, self.last):
            head = self._unresolved.pop(0)
            counted.append(Resolved(head, self.next_offset))
            self.last, self.next_offset = head.position, self.next_offset + head.offset_count
        return counted


def _follows(position: Position, other: Position) -> bool:
    return position.ledger_id == other.ledger_id and position.entry_id == other.entry_id + 1
