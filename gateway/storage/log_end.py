"""Where a log ends, and the base offset of what was written (DESIGN D4). Pure: fed by receipts and by entries read.

A send receipt names (ledger, entry). If that follows directly on the last entry known, the base offset is the running
count. Otherwise somebody else wrote in between, or a new ledger began: the receipt waits until the entry itself, or one
that it follows, has been read with its index.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from gateway.pulsar.position import Position

MAX_REMEMBERED = 10_000
"""Entries that were read before their receipts came."""


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
        self._read_ahead: dict[Position, int] = {}

    @property
    def unresolved(self) -> bool:
        """Some receipt waits for entries to be read."""
        return bool(self._unresolved)

    def follows(self, position: Position) -> bool:
        return position.ledger_id == self.last.ledger_id and position.entry_id == self.last.entry_id + 1

    def on_receipt(self, position: Position, count: int, resolve: Callable[[int], None]) -> None:
        """An entry of ours with ``count`` offsets was written; ``resolve`` gets its base offset, now or later."""
        self._unresolved.append(Unresolved(position, count, resolve))
        self._resolve()

    def on_entry(self, position: Position, base_offset: int, next_offset: int) -> bool:
        """An entry was read. True if it moves the end; False if it was known."""
        if position <= self.last:
            return False
        self.last, self.next_offset = position, next_offset
        if len(self._read_ahead) >= MAX_REMEMBERED:
            self._read_ahead.pop(next(iter(self._read_ahead)))
        self._read_ahead[position] = base_offset
        return True

    def settle(self) -> None:
        """Resolve the receipts that the entries read so far allow."""
        self._resolve()

    def forget_read_ahead(self) -> None:
        """Nothing of ours is in flight: no receipt will ask for entries read before."""
        self._read_ahead.clear()

    def abandon(self) -> list[Unresolved]:
        """Give up the receipts that wait."""
        abandoned = list(self._unresolved)
        self._unresolved.clear()
        return abandoned

    def _resolve(self) -> None:
        while self._unresolved:
            head = self._unresolved[0]
            if self.follows(head.position):
                base_offset = self.next_offset
                self.last, self.next_offset = head.position, base_offset + head.offset_count
            elif head.position in self._read_ahead:
                base_offset = self._read_ahead.pop(head.position)
            else:
                return
            self._unresolved.popleft()
            head.resolve(base_offset)
