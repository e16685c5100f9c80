"""Where a log starts and ends, when it is opened: with one reader, one for its last entry, and one admin request."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

import structlog

from gateway.log.deleted_records import deleted_before
from gateway.log.opening import (
    NOTHING,
    EntryQueue,
    FirstLedger,
    FirstOffset,
    LogBounds,
    end_before_open_ledger,
    is_compacted,
    read_entries,
    read_on,
)
from gateway.pulsar.admin import AdminClient
from gateway.pulsar.admin_topics import ManagedLedgerInfo
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.position import Position, first_index
from gateway.pulsar.reader import Entry, Reader

COMPACTION_CURSOR = "__compaction"

log = structlog.get_logger()


async def read_bounds(client: PulsarClient, admin: AdminClient, topic: str) -> LogBounds:
    """Where a log starts and ends now. Raises PulsarError and TimeoutError."""
    asked_at = time.monotonic()
    queue = EntryQueue()
    reader = await client.open_reader(topic, "earliest", queue)
    try:
        last, held = await asyncio.gather(reader.last_position(), admin.topics.managed_ledger(topic))
        if last.entry_id < 0 or last.ledger_id not in held.ledger_ids:  # perhaps it names an entry that has expired
            return await _without_entries(admin, topic, held, asked_at)
        first, skipped = await _first_entry(reader, queue, last)
    finally:
        await reader.close()
    if first is None or first.index is None:
        log.warning("no entry has an index yet: the log starts with the next one", topic=topic)
        return LogBounds(last, 0, 0, asked_at=asked_at)
    next_offset = first.index + 1 if first.position >= last else await _end_offset(client, topic, last)
    start = FirstOffset(first_index(first.index, first.num_messages), at_first_entry=not skipped)
    if skipped:
        log.warning("the log starts behind older entries without index", topic=topic, offset=start.offset)
    known: FirstLedger | None = FirstLedger(first.position.ledger_id, start)
    if await _is_compacted(admin, topic, held):
        start, known = FirstOffset(0, at_first_entry=True), None
    deleted = deleted_before(held.properties)
    if deleted > start.offset:
        start = FirstOffset(deleted, at_first_entry=False)
    return LogBounds(last, next_offset, *start, known, asked_at)


async def _without_entries(admin: AdminClient, topic: str, held: ManagedLedgerInfo, asked_at: float) -> LogBounds:
    end = end_before_open_ledger(held.properties)
    if await _is_compacted(admin, topic, held):
        return LogBounds(NOTHING, end, deleted_before(held.properties), asked_at=asked_at)
    return LogBounds(NOTHING, end, end, starts_at_first_entry=True, asked_at=asked_at)


async def _first_entry(reader: Reader, queue: EntryQueue, last: Position) -> tuple[Entry | None, bool]:
    """The first one that has an index, and whether others lie before it."""
    skipped = False
    async with aclosing(read_on(reader, queue, last)) as entries:
        async for entry in entries:
            if entry.index is not None:
                return entry, skipped
            skipped = True
    return None, skipped


async def _end_offset(client: PulsarClient, topic: str, last: Position) -> int:
    end = 0
    async with aclosing(read_entries(client, topic, last, last)) as entries:
        async for entry in entries:
            if entry.index is not None:
                end = entry.index + 1
    return end


async def _is_compacted(admin: AdminClient, topic: str, held: ManagedLedgerInfo) -> bool:
    return COMPACTION_CURSOR in held.cursors and is_compacted(await admin.topics.internal_stats(topic))
