"""Reads a log for what its batches say about transactions. Entries of native producers are not decoded."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

from gateway.log.entries.decoding import converted
from gateway.log.entries.entry_stream import read_entries
from gateway.log.entries.log_entry import from_pulsar, holds_batches
from gateway.log.resources import SCANNED_AHEAD_BYTES, Resources
from gateway.log.transactions.cleaned import end_of_view
from gateway.log.transactions.events import EntryEvents, events_of
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Start


async def scan_events(
    resources: Resources, topic: str, behind: Position, last: Position, *, compacted: bool = False
) -> AsyncGenerator[EntryEvents, None]:
    """Each entry after ``behind``, up to and including ``last``. Raises PulsarError and TimeoutError."""
    last = await end_of_view(resources, topic, last, compacted=compacted)
    if last <= behind or last.entry_id < 0:
        return
    client, admin, limits, decoding = resources.client, resources.admin, resources.limits, resources.decoding
    convert = partial(from_pulsar, max_bytes=limits.max_decompressed_bytes)
    start: Start = behind if behind.ledger_id >= 0 else "earliest"
    found = read_entries(
        client, topic, start, last, read_compacted=compacted, admin=admin, queued_bytes=SCANNED_AHEAD_BYTES
    )
    async with aclosing(found) as entries:
        async for entry in entries:
            if entry.position <= behind:
                continue
            if entry.position > last:  # brokers do not dispatch the last one, and more was written meanwhile
                break
            read = None
            if holds_batches(entry):
                read = await converted(decoding, convert, entry, topic)
            if read is None:
                yield EntryEvents(entry.position)
            else:
                events = events_of(read.data, read.base_offset)
                yield EntryEvents(entry.position, read.next_offset, events, read.base_offset, read.is_copy)
