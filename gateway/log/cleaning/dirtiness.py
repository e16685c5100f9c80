"""The size of the data that was written to a log since it was cleaned last, and which part of it can be cleaned now."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from gateway.pulsar.admin.topics import InternalStats
from gateway.pulsar.position import Position

MAX_ENDS = 64
"""If a log has more, every second one is forgotten: it is cleaned later, by this part of min.compaction.lag.ms."""


class End(NamedTuple):
    """The log ended there at this time, by the monotonic clock; -inf if nothing is known of what is before it."""

    at_s: float
    position: Position
    offset: int


class PastEnds:
    """The ends of one log, the newest last. They tell the age of its entries, whatever clocks their producers have."""

    def __init__(self) -> None:
        self._ends: list[End] = []

    def add(self, end: End) -> None:
        if not self._ends:
            end = end._replace(at_s=-math.inf)
        elif self._ends[-1].position == end.position:
            return
        self._ends.append(end)
        if len(self._ends) > MAX_ENDS:
            self._ends = self._ends[::-2][::-1]

    def newest(self, before_s: float, stable_offset: int) -> End | None:
        """The last end before that time, up to which all is decided. Earlier ones are forgotten."""
        found = None
        for number, end in enumerate(self._ends):
            if end.at_s == -math.inf or (end.at_s <= before_s and end.offset <= stable_offset):
                found = number
        if found is None:
            return None
        del self._ends[:found]
        return self._ends[0]

    def learned(self, at_s: float) -> None:
        """A cleaning has shown at that time that some entries are too young, or undecided."""
        self._ends = [end._replace(at_s=max(end.at_s, at_s)) for end in self._ends]


def is_dirty(stats: InternalStats, cleaned: Position, end: Position, threshold_bytes: int, ratio: float) -> bool:
    """Whether more than ``threshold_bytes``, and more than this part of the log, follow ``cleaned`` up to ``end``.

    ``ratio`` is Kafka's min.cleanable.dirty.ratio: otherwise a large log would be read again for a little new data.
    """
    behind_cleaned = dirty_bytes(stats.ledgers, cleaned)
    dirty = behind_cleaned - dirty_bytes(stats.ledgers, end)
    uncleaned = max(0, behind_cleaned - dirty_bytes(stats.ledgers, stats.compacted_to))  # Pulsar has copied it, too
    clean = max(0, stats.compacted_ledger.size_bytes - uncleaned)
    return dirty >= threshold_bytes and dirty > ratio * (clean + dirty)


def dirty_bytes(ledgers: Sequence[tuple[int, int, int]], behind: Position) -> int:
    """The bytes after an entry, by the ledgers' (id, entries, bytes)."""
    size_bytes = 0
    for ledger_id, entries, ledger_bytes in ledgers:
        if ledger_id > behind.ledger_id:
            size_bytes += ledger_bytes
        elif ledger_id == behind.ledger_id and entries:
            size_bytes += ledger_bytes * max(0, entries - 1 - behind.entry_id) // entries
    return size_bytes
