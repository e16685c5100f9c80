"""Where a log ends, and the base offset of what was written (DESIGN D4). Pure: fed by receipts and by entries read.

A send receipt names (ledger, entry). If that follows directly on the last entry known, the base offset is the running
count. Otherwise somebody else wrote in between, or a new ledger began: the receipt waits until the entry itself, or one
next to it, has been read with its index. A reader that is opened while entries are written may pass some over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from gateway.pulsar.position import Position

UNKNOWN_OFFSET = -1
"""Resolves a receipt whose entry will not be read."""


class Unresolved(NamedTuple):
    position: Position
    offset_count: int
    resolve: Callable[[int], None]


class LogEnd:
    """The last entry known and the offset behind it."""

    def __init__(self, last: Position, next_offset: int) -> None:
        self.last = last
        self.next_offset = next_offset
        self._unresolved: deque[Unresolved] = deque()

    @property
    def unresolved(self) -> bool:
        """Some receipt waits for entries to be read."""
        return bool(self._unresolved)

    @property
    def first_unresolved(self) -> Unresolved | None:
        return self._unresolved[0] if self._unresolved else None

    def on_receipt(self, position: Position, count: int, resolve: Callable[[int], None]) -> None:
        """An entry of ours with ``count`` offsets was written; ``resolve`` gets its base offset, now or later.

        Not for entries that were read already: there, the offset is known.
        """
        if position <= self.last:  # and yet it was not read
            resolve(UNKNOWN_OFFSET)
            return
        self._unresolved.append(Unresolved(position, count, resolve))
        self._count()

    def on_entry(self, position: Position, base_offset: int, next_offset: int) -> bool:
        """An entry was read. True if it moves the end; False if it was known."""
        if position <= self.last:
            return False
        passed = self._passed_over(position, base_offset)
        self.last, self.next_offset = position, next_offset
        for receipt, offset in passed:
            receipt.resolve(offset)
        if self._unresolved and self._unresolved[0].position == position:
            self._unresolved.popleft().resolve(base_offset)
        self._count()
        return True

    def _passed_over(self, position: Position, base_offset: int) -> list[tuple[Unresolved, int]]:
        """The receipts of entries before the one read, which did not come, with their offsets: counted back from it."""
        passed: list[tuple[Unresolved, int]] = []
        while self._unresolved and self._unresolved[0].position < position:
            passed.append((self._unresolved.popleft(), UNKNOWN_OFFSET))
        for number, (receipt, _) in reversed(list(enumerate(passed))):
            if not _follows(position, receipt.position):
                break
            position, base_offset = receipt.position, base_offset - receipt.offset_count
            passed[number] = receipt, base_offset
        return passed

    def abandon(self) -> list[Unresolved]:
        """Give up the receipts that wait."""
        abandoned = list(self._unresolved)
        self._unresolved.clear()
        return abandoned

    def _count(self) -> None:
        """Resolve the receipts that follow directly on the last entry known."""
        while self._unresolved and _follows(self._unresolved[0].position, self.last):
            head = self._unresolved.popleft()
            base_offset = self.next_offset
            self.last, self.next_offset = head.position, base_offset + head.offset_count
            head.resolve(base_offset)


def _follows(position: Position, other: Position) -> bool:
    return position.ledger_id == other.ledger_id and position.entry_id == other.entry_id + 1
