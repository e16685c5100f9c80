"""Reads the end of a log to learn its idempotent producers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import NamedTuple

from gateway.config.limits import Limits
from gateway.log.entries.decoding import DecodingThreads, converted
from gateway.log.entries.entry_stream import read_entries
from gateway.log.entries.log_entry import LogEntry, from_pulsar, holds_batches
from gateway.log.reading.positions import scan_start
from gateway.log.resources import SCANNED_AHEAD_BYTES
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.topics import InternalStats, Ledger
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Start


class Tail(NamedTuple):
    """The two parts of a log that are read to learn its idempotent producers end at these entries."""

    last: Position
    taken_over: Position
    """The last entry when this gateway opened the log. Entries that another gateway left unanswered are before it.
    Since then other writers may have written much, without sequences."""


async def read_tail(
    client: PulsarClient,
    admin: AdminClient,
    topic: str,
    stats: InternalStats,
    tail: Tail,
    limits: Limits,
    decoding: DecodingThreads,
    take: Callable[[LogEntry], None],
) -> None:
    """Pass the last ``producer_state_scan_bytes`` of the log to ``take``, in order, and the same amount before
    ``taken_over``. Raises PulsarError.
    """
    convert = partial(from_pulsar, max_bytes=limits.max_decompressed_bytes)
    for start, last in scan_ranges(stats, tail, limits):
        found = read_entries(client, topic, start, last, admin=admin, queued_bytes=SCANNED_AHEAD_BYTES)
        async with aclosing(found) as entries:
            async for entry in entries:
                if not holds_batches(entry):  # of a native producer: it may take long to convert
                    continue
                read = await converted(decoding, convert, entry, topic)
                if read is not None:
                    take(read)


def scan_ranges(stats: InternalStats, tail: Tail, limits: Limits) -> list[tuple[Start, Position]]:
    """Each range from its first to its last entry. They hold at least what one gateway may have had in flight."""
    if tail.last.entry_id < 0:
        return []
    scan_bytes, scan_entries = limits.producer_state_scan_bytes, 2 * limits.append_max_in_flight_entries
    # What brokers hold back is behind the tail.
    readable = stats.ledgers if tail.last >= stats.last_confirmed else _up_to(stats.ledgers, tail.last)
    start = scan_start(readable or stats.ledgers, scan_bytes, scan_entries)
    before = _up_to(stats.ledgers, tail.taken_over)
    if not before or not isinstance(start, Position):
        return [(start, tail.last)]
    earlier = scan_start(before, scan_bytes, scan_entries)
    if start <= tail.taken_over:
        return [("earliest" if earlier == "earliest" else min(earlier, start), tail.last)]
    return [(earlier, tail.taken_over), (start, tail.last)]


def _up_to(ledgers: Sequence[Ledger], last: Position) -> list[Ledger]:
    """The ledgers as they were when ``last`` was the last entry."""
    found = [ledger for ledger in ledgers if ledger.ledger_id < last.ledger_id]
    for ledger in ledgers:
        if ledger.ledger_id == last.ledger_id and 0 <= last.entry_id < ledger.entries:
            entries = last.entry_id + 1
            found.append(ledger._replace(entries=entries, size_bytes=ledger.size_bytes * entries // ledger.entries))
    return found
