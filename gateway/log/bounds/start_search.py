"""Finds a log's start: the first entry that still exists, unless records before a later offset are deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

import structlog

from gateway.log.bounds.deleted_records import read_deleted
from gateway.log.entries.entry_stream import read_entries
from gateway.log.entries.stored_entries import NotReturnedError, stored_entry, undispatched_entry
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.topics import InternalStats, Ledger, StoredEntry
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.position import Position, first_index
from gateway.pulsar.reader import Entry

log = structlog.get_logger()


class FirstOffset(NamedTuple):
    """The start of a log."""

    offset: int
    at_first_entry: bool
    """No entry exists before this offset: a reader that starts here needs no search."""


class FirstLedger(NamedTuple):
    """The first ledger that holds entries; as long as it exists, the first entry stays the same."""

    ledger_id: int
    start: FirstOffset


class StartSearch:
    """Finds a log's start repeatedly: it reads the first entry only when the first ledger has changed."""

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
        start = await self._read_first(first, last, stats) or await kept_start(self._admin, self._topic, first, last)
        self._first = None if start is None else FirstLedger(stored[0].ledger_id, start)
        return start

    async def _read_first(self, ledger_id: int, last: Position, stats: InternalStats) -> FirstOffset | None:
        """None if brokers dispatch no entry. If they hold all of them back, or are slow, the admin API has the first.

        That answer is kept: a busy broker may not give it again.
        """
        stored: FirstOffset | None = None

        async def none_arrives(behind: Position) -> bool:
            nonlocal stored
            try:
                stored = await stored_start(self._admin, self._topic, ledger_id)
            except NotReturnedError:
                return False
            return stored is not None

        found = read_entries(
            self._client, self._topic, "earliest", last, admin=self._admin, none_arrives=none_arrives
        )
        async with aclosing(found) as entries:
            async for entry in entries:
                if entry.index is not None:
                    return await start_of(self._admin, self._topic, ledger_id, entry)
                oldest = await find_first_indexed(self._admin, self._topic, stats.ledgers)
                return None if oldest is None else start_at_indexed(self._topic, oldest)
        return stored


async def find_first_indexed(admin: AdminClient, topic: str, ledgers: Sequence[Ledger]) -> StoredEntry | None:
    """The first entry with an index; the entries before it are older than the index in Pulsar's configuration.

    Very many may be older: the search by halves takes few requests. Raises PulsarError.
    """

    async def indexed(ledger: Ledger, entry_id: int) -> StoredEntry | None:
        entry = await admin.topics.entry(topic, Position(ledger.ledger_id, entry_id))
        return None if entry is None or entry.index is None else entry

    stored = [ledger for ledger in ledgers if ledger.entries > 0]
    number, last = await _first_found(len(stored), lambda number: indexed(stored[number], stored[number].entries - 1))
    if last is None:
        return None
    ledger = stored[number]
    _, first = await _first_found(ledger.entries - 1, lambda entry_id: indexed(ledger, entry_id))
    return first or last


async def _first_found(
    count: int, find: Callable[[int], Awaitable[StoredEntry | None]]
) -> tuple[int, StoredEntry | None]:
    """The first of ``count`` numbers for which something is found, as it is for all numbers after it."""
    low, high, first = 0, count, None
    while low < high:
        middle = (low + high) // 2
        found = await find(middle)
        if found is None:
            low = middle + 1
        else:
            high, first = middle, found
    return low, first


def start_at_indexed(topic: str, oldest: StoredEntry) -> FirstOffset:
    """The start of a log whose first entries have no index."""
    assert oldest.index is not None
    start = first_index(oldest.index, oldest.num_messages)
    log.warning("the log starts after older entries without an index", topic=topic, offset=start)
    return FirstOffset(start, at_first_entry=False)


async def start_of(admin: AdminClient, topic: str, ledger_id: int, first: Entry) -> FirstOffset:
    """The start of a log, from the first entry that readers get and the first ledger. Raises PulsarError.

    Entries before it belong to the log, though readers never get them: the start must not move when the first one is
    written that readers get.
    """
    assert first.index is not None
    start = FirstOffset(first_index(first.index, first.num_messages), at_first_entry=True)
    if first.position <= Position(ledger_id, 0):
        return start
    try:
        return await stored_start(admin, topic, ledger_id) or start
    except NotReturnedError:
        return start


async def kept_start(admin: AdminClient, topic: str, ledger_id: int, last: Position) -> FirstOffset | None:
    """The start of a log of which brokers dispatch no entry, by the first entry of its first ledger.

    If the admin API cannot return that entry, the log starts behind ``last``: it holds no record. Raises PulsarError.
    """
    try:
        return await stored_start(admin, topic, ledger_id)
    except NotReturnedError:
        entry = await undispatched_entry(admin, topic, last)
    return None if entry is None or entry.index is None else FirstOffset(entry.index + 1, at_first_entry=True)


async def stored_start(admin: AdminClient, topic: str, ledger_id: int) -> FirstOffset | None:
    """The offset of a ledger's first entry, by the admin API; None if it has none. Raises PulsarError."""
    entry = await stored_entry(admin, topic, Position(ledger_id, 0))
    if entry is None or entry.index is None:
        return None
    return FirstOffset(first_index(entry.index, entry.num_messages), at_first_entry=True)


def is_compacted(stats: InternalStats) -> bool:
    """Whether compaction has run. The log then starts at 0, as in Kafka: compaction does not move the start."""
    return stats.compacted_ledger.ledger_id >= 0
