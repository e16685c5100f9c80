"""The size of the data that was written to a log since its last compaction."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.pulsar.admin.topics import InternalStats
from gateway.pulsar.position import Position

FIRST = Position(-1, -1)


def is_dirty(stats: InternalStats, cleaned: Position, threshold_bytes: int, ratio: float) -> bool:
    """Whether more than ``threshold_bytes``, and more than this part of the log, follow ``cleaned``.

    If it is FIRST, the last compaction by Pulsar counts: it followed the last cleaning, and reached a little further.
    ``ratio`` is Kafka's min.cleanable.dirty.ratio: otherwise a large log would be read again for a little new data.
    """
    if cleaned == FIRST:
        cleaned = stats.compacted_to
    dirty = dirty_bytes(stats.ledgers, cleaned)
    clean = max(0, stats.compacted_ledger.size_bytes)
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
