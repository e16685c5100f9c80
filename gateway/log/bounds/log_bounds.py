"""Finds a log's start and end when it is opened: with one reader, another for the last entry, and one admin request."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import aclosing
from typing import NamedTuple

import structlog

from gateway.background import run_shared
from gateway.log.bounds.copied_transactions import (
    Replication,
    find_in_compacted,
    find_replication,
    has_replicators,
)
from gateway.log.bounds.deleted_records import deleted_before
from gateway.log.bounds.empty_end import end_before_open_ledger
from gateway.log.bounds.start_search import (
    FirstLedger,
    FirstOffset,
    find_first_indexed,
    is_compacted,
    kept_start,
    start_at_indexed,
    start_of,
    stored_start,
)
from gateway.log.bounds.transaction_flag import flagged_position
from gateway.log.entries.entry_stream import NOTHING, read_entry, read_on
from gateway.log.entries.silent_reader import reader_gets_none
from gateway.log.entries.start_reader import StartReader, open_start_reader
from gateway.log.entries.stored_entries import NotReturnedError, end_at, undispatched_entry
from gateway.log.entries.undispatched import undispatched_end
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.topics import COMPACTION_CURSOR, InternalStats, ManagedLedgerInfo
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ServiceNotReadyError
from gateway.pulsar.position import Position, first_index
from gateway.pulsar.reader import Entry

log = structlog.get_logger()


class LogBounds(NamedTuple):
    """The last entry, the offset after it, and the first offset that still exists."""

    last: Position
    next_offset: int
    start_offset: int
    starts_at_first_entry: bool = False
    first: FirstLedger | None = None
    asked_at: float = -math.inf
    """The time before the first request to Pulsar, by the monotonic clock."""
    flag: Position | None = None
    """The position after which there may be transactions; None if there are none up to the last entry."""
    start_reader: StartReader | None = None
    """Open at `start_offset`, and now the caller's; None if no reader can go on from there."""
    replication: Replication = Replication()
    """What the last entries show of other clusters."""
    has_newer_ledger: bool = False
    """Mostly it is empty. But the broker that named the last entry may have lost the topic to another one."""


class _First(NamedTuple):
    """The facts that the first entry shows."""

    ledger: FirstLedger
    end: _End | None
    """The end of the log, if no other entry will arrive; else None."""


class _End(NamedTuple):
    """The offset after the last entry, and that entry, if readers get it."""

    offset: int
    entry: Entry | None = None


async def read_bounds(client: PulsarClient, admin: AdminClient, topic: str) -> LogBounds:
    """The current start and end of a log. Raises PulsarError and TimeoutError."""
    asked_at = time.monotonic()
    started = await open_start_reader(client, topic)
    bounds: LogBounds | None = None
    try:
        bounds = await _read_bounds(client, admin, topic, started, asked_at)
        return bounds
    finally:
        if bounds is None or bounds.start_reader is None:
            await started.reader.close()


async def _read_bounds(
    client: PulsarClient, admin: AdminClient, topic: str, started: StartReader, asked_at: float
) -> LogBounds:
    end: asyncio.Task[_End] | None = None
    try:
        last = await started.reader.last_position()
        # The first and the last entry arrive during the admin request.
        if last.entry_id >= 0:
            started.window.top_up(started.reader, 1)
        if last.entry_id > 0:  # otherwise it is probably the first one, too
            end = run_shared("end of a log", _end(client, admin, topic, last))
        held = await admin.topics.managed_ledger(topic)  # after `last`: an entry's flag is written before the entry
        flag = flagged_position(held.properties)
        has_newer = last.ledger_id < max(held.ledger_ids, default=-1)
        if last.entry_id < 0 or last.ledger_id not in held.ledger_ids:  # `last` may name an expired entry
            empty = await _without_entries(client, admin, topic, held, asked_at)
            return empty._replace(flag=flag, has_newer_ledger=has_newer)
        first = await _first(client, admin, topic, started, last)
        if first is None:
            log.warning("no entry has an index yet: the log starts with the next one", topic=topic)
            end_offset = await end_at(admin, topic, last, None)
            return LogBounds(
                last, end_offset, end_offset, asked_at=asked_at, flag=flag,
                replication=Replication(has_replicators(held)), has_newer_ledger=has_newer,
            )  # fmt: skip
        found = first.end
        if found is None:
            found = await (end or _end(client, admin, topic, last))
    finally:
        if end is not None:
            end.cancel()
    known: FirstLedger | None = first.ledger
    start = first.ledger.start
    if await _is_compacted(admin, topic, held):
        start, known = FirstOffset(0, at_first_entry=True), None
    deleted = deleted_before(held.properties)
    if deleted > start.offset:
        start = FirstOffset(deleted, at_first_entry=False)
    replication = await find_replication(client, admin, topic, held, last, found.entry)
    may_go_on = started.can_go_on and start.offset == started.offset and start is first.ledger.start
    kept = started if may_go_on else None
    return LogBounds(last, found.offset, *start, known, asked_at, flag, kept, replication, has_newer)


async def _without_entries(
    client: PulsarClient, admin: AdminClient, topic: str, held: ManagedLedgerInfo, asked_at: float
) -> LogBounds:
    """The bounds of a log of which readers get no entry: it has none, or an open native transaction precedes all."""
    end = end_before_open_ledger(held.properties)
    if await _is_compacted(admin, topic, held):
        replication = await find_in_compacted(client, admin, topic, held)
        return LogBounds(NOTHING, end, deleted_before(held.properties), asked_at=asked_at, replication=replication)
    if end or len(held.ledger_ids) > 1:  # there are, or were, entries
        start = await _start_of_held_back(client, admin, topic)
        end = end if start is None else start.offset
    replication = Replication(has_replicators(held))
    return LogBounds(NOTHING, end, end, starts_at_first_entry=True, asked_at=asked_at, replication=replication)


async def _start_of_held_back(client: PulsarClient, admin: AdminClient, topic: str) -> FirstOffset | None:
    """The start of a log of which brokers hold everything back, or will dispatch nothing; None in the second case, if
    the admin API cannot return the first entry.
    """
    stats = await admin.topics.internal_stats(topic)
    ledger_id = _first_with_entries(stats)
    try:
        return None if ledger_id is None else await stored_start(admin, topic, ledger_id)
    except NotReturnedError:
        if await reader_gets_none(client, admin, topic, NOTHING, stats.last_confirmed):
            return None
        raise


async def _first(
    client: PulsarClient, admin: AdminClient, topic: str, started: StartReader, last: Position
) -> _First | None:
    """The log's start, from the first entry that has an index; None if no entry has one."""
    kept_end: int | None = None

    async def all_read(behind: Position) -> bool:
        nonlocal kept_end
        kept_end = await undispatched_end(client, admin, topic, behind, last)
        return kept_end is not None

    found = read_on(started.reader, started.queue, last, NOTHING, all_read, started.window)
    async with aclosing(found) as entries:
        async for entry in entries:
            if entry.index is None:
                return await _first_behind(admin, topic, entry)
            start = await start_of(admin, topic, entry.position.ledger_id, entry)
            started.first, started.offset = entry, first_index(entry.index, entry.num_messages)
            end = _End(entry.index + 1, entry) if entry.position >= last else None
            return _First(FirstLedger(entry.position.ledger_id, start), end)
    return await _first_of_kept(admin, topic, last, kept_end)


async def _first_behind(admin: AdminClient, topic: str, unindexed: Entry) -> _First | None:
    """The start of a log whose first entry has no index; None if no entry has one."""
    oldest = await find_first_indexed(admin, topic, (await admin.topics.internal_stats(topic)).ledgers)
    if oldest is None:
        return None
    return _First(FirstLedger(unindexed.position.ledger_id, start_at_indexed(topic, oldest)), None)


def _first_with_entries(stats: InternalStats) -> int | None:
    return next((ledger.ledger_id for ledger in stats.ledgers if ledger.entries > 0), None)


async def _first_of_kept(admin: AdminClient, topic: str, last: Position, end_offset: int | None) -> _First | None:
    """The start of a log of which brokers dispatch no entry."""
    ledger_id = _first_with_entries(await admin.topics.internal_stats(topic))
    start = None if ledger_id is None else await kept_start(admin, topic, ledger_id, last)
    end = None if end_offset is None else _End(end_offset)
    return None if start is None or ledger_id is None else _First(FirstLedger(ledger_id, start), end)


async def _end(client: PulsarClient, admin: AdminClient, topic: str, last: Position) -> _End:
    """The end after ``last``. Brokers never report undispatched entries that they wrote themselves as the last."""
    entry = await read_entry(client, topic, last, admin)
    found = entry or await undispatched_entry(admin, topic, last)
    if found is None:
        raise ServiceNotReadyError(f"the last entry of {topic} was deleted in the meantime")
    offset = await end_at(admin, topic, last, found.index)
    return _End(offset, entry)


async def _is_compacted(admin: AdminClient, topic: str, held: ManagedLedgerInfo) -> bool:
    return COMPACTION_CURSOR in held.cursors and is_compacted(await admin.topics.internal_stats(topic))
