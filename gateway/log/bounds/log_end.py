"""The end of a log, and the base offsets of written entries. No I/O: the input is receipts and entries that were read.

A send receipt contains (ledger, entry). If this position directly follows the last known entry, the base offset is the
current end offset. Otherwise another writer wrote in between, or a new ledger began: the receipt waits until the entry
itself, or an adjacent one, has been read with its index. A reader that is opened while entries are written may miss
some of them.

Brokers hold back what follows an open transaction of a native producer. Receipts for such entries get their offsets,
but do not move the end: it would be another one at a gateway that has only what readers get.
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


class _Ahead(NamedTuple):
    """Entries that are written, but held back."""

    behind: Position
    """What follows this entry is not of a native producer: when readers get this one, they get all up to ``last``."""
    last: Position
    next_offset: int


class LogEnd(Generic[Sent]):
    """The last known entry and the offset after it."""

    def __init__(self, last: Position, next_offset: int) -> None:
        self.last = last
        self.next_offset = next_offset
        self._unresolved: list[Receipt[Sent]] = []
        self._ahead: _Ahead | None = None

    @property
    def is_held_back(self) -> bool:
        """Entries after the end are known to be written."""
        return self._ahead is not None

    @property
    def written_offset(self) -> int:
        """The offset after the last entry that is known to be written."""
        return self.next_offset if self._ahead is None else self._ahead.next_offset

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
            if self._ahead is not None:
                self._meet_ahead()
            return [Resolved(receipt, base_offset)]
        if position <= last:  # although the entry was not read
            return [Resolved(receipt, UNKNOWN_OFFSET)]
        self._unresolved.append(receipt)
        return self._count() or self._count_ahead()

    def on_held_back(self, receipt: Receipt[Sent], base_offset: int) -> list[Resolved[Sent]]:
        """The entry of the first receipt that waits has this offset, and is held back. Returns the resolved receipts.

        Those behind the end are the ones that are held back.
        """
        assert self._unresolved[0] is receipt
        position = self._unresolved.pop(0).position
        self._written(position._replace(entry_id=position.entry_id - 1), position, base_offset + receipt.offset_count)
        return [Resolved(receipt, base_offset), *self._count_ahead()]

    def written_ahead(self, last: Position, next_offset: int) -> None:
        """This entry, of whatever writer, and those before it are written, and held back."""
        self._written(last, last, next_offset)

    def _written(self, behind: Position, last: Position, next_offset: int) -> None:
        if last > self.last and (self._ahead is None or last > self._ahead.last):
            self._ahead = _Ahead(behind, last, next_offset)

    def on_entry(self, position: Position, base_offset: int, next_offset: int) -> list[Resolved[Sent]]:
        """An entry was read; it moves the end if it is new. Returns the resolved receipts, in the log's order."""
        if position <= self.last:
            return []
        resolved = self._passed_over(position, base_offset)
        self.last, self.next_offset = position, next_offset
        if self._unresolved and self._unresolved[0].position == position:
            resolved.append(Resolved(self._unresolved.pop(0), base_offset))
        self._meet_ahead()
        return resolved + self._count()

    def _meet_ahead(self) -> None:
        """What was held back may follow now."""
        ahead = self._ahead
        if ahead is not None and self.last >= ahead.behind:
            self._ahead = None
            if ahead.last > self.last:
                self.last, self.next_offset = ahead.last, ahead.next_offset

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
        self._meet_ahead()
        return counted

    def _count_ahead(self) -> list[Resolved[Sent]]:
        """The receipts that directly follow what is known to be held back."""
        counted: list[Resolved[Sent]] = []
        while self._ahead is not None and self._unresolved and _follows(self._unresolved[0].position, self._ahead.last):
            head = self._unresolved.pop(0)
            counted.append(Resolved(head, self._ahead.next_offset))
            next_offset = self._ahead.next_offset + head.offset_count
            self._ahead = self._ahead._replace(last=head.position, next_offset=next_offset)
        return counted


def _follows(position: Position, other: Position) -> bool:
    return position.ledger_id == other.ledger_id and position.entry_id == other.entry_id + 1
