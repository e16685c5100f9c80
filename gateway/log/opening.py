"""What opening a partition's log reads from Pulsar: entries, where it starts, and the producers at its end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import NamedTuple

import structlog

from gateway.backoff import Backoff
from gateway.config import Limits
from gateway.log.deleted_records import read_deleted
from gateway.log.entries.decoding import DecodingThreads, converted
from gateway.log.entries.log_entry import LogEntry, from_pulsar
from gateway.log.undispatched import SILENT_S, undispatched_end
from gateway.pulsar.admin import AdminClient
from gateway.pulsar.admin_topics import InternalStats, Ledger
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError, RequestTimeoutError
from gateway.pulsar.flow_window import FlowWindow
from gateway.pulsar.position import Position, first_index
from gateway.pulsar.reader import Entry, Reader, Start

MAX_PERMITS = 1_000
PERMITS_GROWTH = 4
"""To begin with, one message is asked for: most want one entry, and the broker reads a hundred if it may."""
READ_TIMEOUT_S = 10.0
NOTHING = Position(-1, -1)
DRAIN_PAUSE_S = 0.2
FIRST_DRAIN_PAUSE_S = 0.005
"""Most that waits for the disks is there in milliseconds: the broker is asked again soon, then less and less often."""
DRAIN_CHECKS = 50
"""So often is the broker asked whether it is still writing."""

log = structlog.get_logger()


class FirstOffset(NamedTuple):
    """Where a log starts."""

    offset: int
    at_first_entry: bool
    """No entry lies before it: who reads from there needs no search."""


class FirstLedger(NamedTuple):
    """The first one that holds entries; while it is there, the first entry is the same."""

    ledger_id: int
    start: FirstOffset


class LogBounds(NamedTuple):
    """The last entry, the offset behind it, and the first offset that is still there."""

    last: Position
    next_offset: int
    start_offset: int
    starts_at_first_entry: bool = False
    first: FirstLedger | None = None
    asked_at: float = -math.inf
    """Before anything was asked of Pulsar, by the monotonic clock."""


AllCame = Callable[[Position], Awaitable[bool]]
"""Whether nothing will come from behind that entry, asked when nothing came for a while."""


class EntryQueue:
    """An EntryListener that hands entries to whoever iterates."""

    def __init__(self) -> None:
        self.entries: asyncio.Queue[Entry | PulsarError] = asyncio.Queue()

    def on_entry(self, entry: Entry) -> None:
        self.entries.put_nowait(entry)

    def on_reader_closed(self, error: PulsarError) -> None:
        self.entries.put_nowait(error)


async def read_entries(
    client: PulsarClient,
    topic: str,
    start: Start,
    last: Position,
    *,
    read_compacted: bool = False,
    admin: AdminClient | None = None,
) -> AsyncGenerator[Entry, None]:
    """The entries from ``start`` (inclusive) to ``last``. Raises PulsarError, TimeoutError when none comes.

    ``admin`` is asked, when none comes, whether brokers keep the rest to themselves: then it ends there.
    """
    queue = EntryQueue()
    reader = await client.open_reader(topic, start, queue, read_compacted=read_compacted)
    behind = start._replace(entry_id=start.entry_id - 1) if isinstance(start, Position) else NOTHING

    async def all_came(behind: Position) -> bool:
        return admin is not None and await undispatched_end(admin, topic, behind, last) is not None

    try:
        async with aclosing(read_on(reader, queue, last, behind, all_came)) as entries:
            async for entry in entries:
                yield entry
    finally:
        await reader.close()


async def read_on(
    reader: Reader, queue: EntryQueue, last: Position, behind: Position, all_came: AllCame
) -> AsyncGenerator[Entry, None]:
    """What a reader that was just opened for ``queue`` delivers, from ``behind`` an entry up to ``last``.

    Raises as ``read_entries`` does.
    """
    window, permits = FlowWindow(), 1
    while True:
        if window.top_up(reader, permits):
            permits = min(MAX_PERMITS, permits * PERMITS_GROWTH)
        entry = await _next_entry(queue, behind, all_came)
        if entry is None:
            return
        window.used(entry)
        behind = entry.position
        yield entry
        if entry.position >= last:
            return


async def _next_entry(queue: EntryQueue, behind: Position, all_came: AllCame) -> Entry | None:
    """None if no other will come. Raises PulsarError and TimeoutError."""
    async with asyncio.timeout(READ_TIMEOUT_S):
        while True:
            try:
                async with asyncio.timeout(SILENT_S):
                    entry = await queue.entries.get()
            except TimeoutError:
                if await all_came(behind):
                    return None
            else:
                if isinstance(entry, PulsarError):
                    raise entry
                return entry


async def empty_end(admin: AdminClient, topic: str) -> int:
    """Where the log ends if no entry is left, but perhaps compacted ones: the last index is kept beside the ledgers.

    Raises PulsarError.
    """
    return end_before_open_ledger(await admin.topics.managed_ledger_properties(topic))


def end_before_open_ledger(properties: Mapping[str, str]) -> int:
    """By the properties of the managed ledger."""
    return int(properties.get("index", "-1")) + 1


def is_compacted(stats: InternalStats) -> bool:
    """Then the log starts at 0, as in Kafka: compaction takes records away, and leaves the start where it was."""
    return stats.compacted_ledger.ledger_id >= 0


class StartSearch:
    """Finds a log's start, again and again: it reads the first entry only when that is another one."""

    def __init__(
        self, client: PulsarClient, admin: AdminClient, topic: str, first: FirstLedger | None = None
    ) -> None:
        self._client = client
        self._admin = admin
        self._topic = topic
        self._first = first

    async def run(self) -> FirstOffset | None:
        """The first offset that can be read; None if nothing is stored, though the log's end may name an expired entry.

        Raises PulsarError and TimeoutError.
        """
        stored, deleted = await asyncio.gather(self._first_stored(), read_deleted(self._admin, self._topic))
        if stored is None or deleted <= stored.offset:
            return stored
        return FirstOffset(deleted, at_first_entry=False)

    async def _first_stored(self) -> FirstOffset | None:
        stats = await self._admin.topics.internal_stats(self._topic)
        if is_compacted(stats):
            return FirstOffset(0, at_first_entry=True)
        stored = [ledger for ledger in stats.ledgers if ledger.entries > 0]
        if not stored:
            return None
        if self._first is not None and self._first.ledger_id == stored[0].ledger_id:
            return self._first.start
        first, last = stored[0].ledger_id, Position(stored[-1].ledger_id, stored[-1].entries - 1)
        start = await self._read_first(last) or await kept_start(self._admin, self._topic, first)
        self._first = None if start is None else FirstLedger(stored[0].ledger_id, start)
        return start

    async def _read_first(self, last: Position) -> FirstOffset | None:
        skipped = False
        found = read_entries(self._client, self._topic, "earliest", last, admin=self._admin)
        async with aclosing(found) as entries:
            async for entry in entries:
                if entry.index is None:
                    skipped = True
                    continue
                start = first_index(entry.index, entry.num_messages)
                if skipped:
                    log.warning("the log starts behind older entries without index", topic=self._topic, offset=start)
                return FirstOffset(start, at_first_entry=not skipped)
        return None


async def kept_start(admin: AdminClient, topic: str, ledger_id: int) -> FirstOffset | None:
    """Where a log starts of which no reader gets an entry, by the first one of its first ledger. Raises PulsarError."""
    entry = await admin.topics.entry(topic, Position(ledger_id, 0))
    if entry is None or entry.index is None:
        return None
    return FirstOffset(first_index(entry.index, entry.num_messages), at_first_entry=True)


async def drained(admin: AdminClient, topic: str) -> InternalStats:
    """The topic when all that the broker had received at the time of the call is written, whoever sent it.

    What was sent over a connection that is lost may still wait for the disks, and no new entry overtakes it. Raises
    PulsarError.
    """
    stats = await admin.topics.internal_stats(topic)
    first = stats.entries_added
    target = first + stats.pending_adds
    backoff = Backoff(FIRST_DRAIN_PAUSE_S, DRAIN_PAUSE_S)
    for _ in range(DRAIN_CHECKS):
        if stats.pending_adds == 0 or not first <= stats.entries_added < target:  # counts from 0 in a loaded topic
            return stats
        await backoff.pause()
        stats = await admin.topics.internal_stats(topic)
    raise RequestTimeoutError("the broker does not come to an end with writing")


class Tail(NamedTuple):
    """What is read of a log to know its idempotent producers again."""

    last: Position
    taken_over: Position
    """The last entry when this gateway began with the log. What another one left unanswered lies before it, and others
    may have written much since, without sequences."""


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
    """Hand the last ``producer_state_scan_bytes`` of the log to ``take``, in order, and as much of what was there when
    it was taken over. Raises PulsarError.
    """
    convert = partial(from_pulsar, max_bytes=limits.max_decompressed_bytes)
    for start, last in scan_ranges(stats, tail, limits):
        async with aclosing(read_entries(client, topic, start, last, admin=admin)) as entries:
            async for entry in entries:
                read = await converted(decoding, convert, entry, topic)
                if read is not None:
                    take(read)


def scan_ranges(stats: InternalStats, tail: Tail, limits: Limits) -> list[tuple[Start, Position]]:
    """Each from its first to its last entry. They hold at least what one gateway may have had in flight."""
    if tail.last.entry_id < 0:
        return []
    scan_bytes, scan_entries = limits.producer_state_scan_bytes, 2 * limits.append_max_in_flight_entries
    start = scan_start(stats.ledgers, scan_bytes, scan_entries)
    before = _up_to(stats.ledgers, tail.taken_over)
    if not before or not isinstance(start, Position):
        return [(start, tail.last)]
    earlier = scan_start(before, scan_bytes, scan_entries)
    if start <= tail.taken_over:
        return [("earliest" if earlier == "earliest" else min(earlier, start), tail.last)]
    return [(earlier, tail.taken_over), (start, tail.last)]


def _up_to(ledgers: Sequence[Ledger], last: Position) -> list[Ledger]:
    """As they were when that was the last entry."""
    found = [ledger for ledger in ledgers if ledger.ledger_id < last.ledger_id]
    for ledger in ledgers:
        if ledger.ledger_id == last.ledger_id and 0 <= last.entry_id < ledger.entries:
            entries = last.entry_id + 1
            found.append(ledger._replace(entries=entries, size_bytes=ledger.size_bytes * entries // ledger.entries))
    return found


def scan_start(ledgers: Sequence[Ledger], scan_bytes: int, scan_entries: int = 0) -> Start:
    """About ``scan_bytes`` before the end by the ledgers' average entry sizes, and so many entries at least."""
    for ledger in reversed(ledgers):
        share = 1.0 if ledger.size_bytes <= scan_bytes else scan_bytes / ledger.size_bytes
        wanted = max(math.ceil(ledger.entries * share), min(scan_entries, ledger.entries))
        scan_bytes, scan_entries = max(0, scan_bytes - ledger.size_bytes), max(0, scan_entries - ledger.entries)
        if wanted < ledger.entries or (scan_bytes == 0 and scan_entries == 0):
            return Position(ledger.ledger_id, ledger.entries - wanted)
    return "earliest"
