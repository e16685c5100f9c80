"""Finds the Pulsar position of an offset: by known positions nearby, else by a search over ledgers and entries."""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import NamedTuple

from gateway.log.entries.log_entry import LogEntry
from gateway.log.reading.entry_lookup import EntryLookup
from gateway.pulsar.admin.topics import InternalStats, Ledger
from gateway.pulsar.position import Position, first_index
from gateway.pulsar.reader import Start

INDEX_EVERY_BYTES = 4 * 1024 * 1024
MAX_POSITIONS = 4_096
MAX_PROBES = 64


class SparseIndex:
    """Positions of entries that were read, one for each few MB, in offset order."""

    def __init__(self) -> None:
        self._known: list[tuple[int, Position]] = []
        self._since_bytes = INDEX_EVERY_BYTES

    def learn(self, entry: LogEntry) -> None:
        self._since_bytes += entry.size_bytes
        if self._since_bytes < INDEX_EVERY_BYTES or len(self._known) >= MAX_POSITIONS:
            return
        self._since_bytes = 0
        at = bisect_right(self._known, (entry.base_offset, entry.position))
        if at == 0 or self._known[at - 1][0] != entry.base_offset:
            insort(self._known, (entry.base_offset, entry.position))

    def before(self, offset: int) -> tuple[int, Position] | None:
        """The last known entry that starts at or before ``offset``."""
        at = bisect_right(self._known, offset, key=lambda known: known[0])
        return self._known[at - 1] if at else None

    def behind(self, offset: int) -> tuple[int, Position] | None:
        """The first known entry that starts after ``offset``."""
        at = bisect_right(self._known, offset, key=lambda known: known[0])
        return self._known[at] if at < len(self._known) else None


class _Range(NamedTuple):
    """Entries of a ledger and their offsets; the first entry begins at or before the searched offset."""

    ledger_id: int
    low: int
    low_base: int
    high: int
    high_index: int


async def find_position(
    lookup: EntryLookup, topic: str, offset: int, known: SparseIndex | None = None
) -> Position | None:
    """An entry at or shortly before the one that holds ``offset``; None if the log begins after it.

    Searches by interpolation, as entries of a ledger mostly hold equally many messages, and by bisection where that
    fails; between entries of ``known`` if there are close ones. Raises PulsarError and TimeoutError.
    """
    within = _between(known, offset) or await _within_ledger(lookup, topic, offset)
    if within is None:
        return None
    ledger_id, low, low_base, high, high_index = within
    for probe in range(MAX_PROBES):
        if low >= high or low_base >= offset:
            break
        middle = _guess(low, high, low_base, high_index, offset, halve=probe % 3 == 2)
        found = await lookup.entry(topic, Position(ledger_id, middle))
        if found is None or found.index is None:
            break
        base = first_index(found.index, found.num_messages)
        if base <= offset <= found.index:
            return Position(ledger_id, middle)
        if base <= offset:
            low, low_base = middle, base
        else:
            high, high_index = middle - 1, base - 1
    return Position(ledger_id, low)


def _between(known: SparseIndex | None, offset: int) -> _Range | None:
    """The entries between two known entries of one ledger."""
    if known is None:
        return None
    before, behind = known.before(offset), known.behind(offset)
    if before is None or behind is None or before[1].ledger_id != behind[1].ledger_id:
        return None
    (base, first), (next_base, next_first) = before, behind
    return _Range(first.ledger_id, first.entry_id, base, next_first.entry_id - 1, next_base - 1)


async def _within_ledger(lookup: EntryLookup, topic: str, offset: int) -> _Range | None:
    stats = await lookup.admin.topics.internal_stats(topic)
    ledger = await _find_ledger(lookup, topic, stats, offset)
    if ledger is None:
        return None
    ledger_id, entries, base = ledger
    last = await lookup.entry(topic, Position(ledger_id, entries - 1)) if entries > 1 else None
    return _Range(ledger_id, 0, base, entries - 1, base if last is None or last.index is None else last.index)


def back_from(ledgers: Sequence[Ledger], position: Position, entries: int) -> Start:
    """The position this number of entries before ``position``."""
    for ledger in reversed(ledgers):
        if ledger.ledger_id > position.ledger_id:
            continue
        before = position.entry_id if ledger.ledger_id == position.ledger_id else ledger.entries
        if before >= entries:
            return Position(ledger.ledger_id, before - entries)
        entries -= before
    return "earliest"


def _guess(low: int, high: int, low_base: int, high_index: int, offset: int, *, halve: bool) -> int:
    if halve or high_index <= low_base:
        return (low + high + 1) // 2
    share = (offset - low_base) / (high_index - low_base + 1)
    return min(high, max(low + 1, low + int(share * (high - low + 1))))


async def _find_ledger(
    lookup: EntryLookup, topic: str, stats: InternalStats, offset: int
) -> tuple[int, int, int] | None:
    """(ledger id, entries, base offset) of the last ledger that starts at or before ``offset``."""
    ledgers = [ledger for ledger in stats.ledgers if ledger.entries > 0]
    low, high, best = 0, len(ledgers) - 1, None
    while low <= high:
        middle = (low + high) // 2
        first = await lookup.entry(topic, Position(ledgers[middle].ledger_id, 0))
        if first is not None and first.index is not None:
            base = first_index(first.index, first.num_messages)
            if base > offset:
                high = middle - 1
                continue
            best = (ledgers[middle].ledger_id, ledgers[middle].entries, base)
        low = middle + 1
    return best


def scan_start(ledgers: Sequence[Ledger], scan_bytes: int, scan_entries: int = 0) -> Start:
    """About ``scan_bytes`` before the end, by the ledgers' average entry sizes, and at least ``scan_entries``."""
    for ledger in reversed(ledgers):
        share = 1.0 if ledger.size_bytes <= scan_bytes else scan_bytes / ledger.size_bytes
        wanted = max(math.ceil(ledger.entries * share), min(scan_entries, ledger.entries))
        scan_bytes, scan_entries = max(0, scan_bytes - ledger.size_bytes), max(0, scan_entries - ledger.entries)
        if wanted < ledger.entries or (scan_bytes == 0 and scan_entries == 0):
            return Position(ledger.ledger_id, ledger.entries - wanted)
    return "earliest"
