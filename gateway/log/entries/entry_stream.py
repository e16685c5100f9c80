"""The entries of a topic, from one position to another, read once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from gateway.backoff import Backoff
from gateway.fan_out import Slices
from gateway.log.entries.undispatched import SILENT_S, undispatched_end
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.flow_window import FlowWindow
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry, Reader, Start

MAX_PERMITS = 1_000
PERMITS_GROWTH = 4
"""The first request is for one message: most callers want one entry, but a broker reads a hundred if permitted."""
QUEUED_BYTES = 8 * 1024 * 1024
"""The approximate size of the entries that may wait for their caller."""
READ_TIMEOUT_S = 10.0
NOTHING = Position(-1, -1)
AllRead = Callable[[Position], Awaitable[bool]]
"""Returns whether no entry will arrive after the given one; called when none has arrived for a while."""


class EntryQueue:
    """An EntryListener that queues entries for one task."""

    def __init__(self) -> None:
        self.entries: deque[Entry | PulsarError] = deque()
        self._waiting: asyncio.Future[bool] | None = None

    def on_entry(self, entry: Entry) -> None:
        self._put(entry)

    def on_reader_closed(self, error: PulsarError) -> None:
        self._put(error)

    def _put(self, came: Entry | PulsarError) -> None:
        self.entries.append(came)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(True)

    async def wait(self, seconds: float) -> bool:
        """True when there is an entry or an error; False if none arrives within this time."""
        if self.entries:
            return True
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[bool] = loop.create_future()
        self._waiting = waiting
        timer = loop.call_later(seconds, _give_way, waiting)
        try:
            return await waiting
        finally:
            timer.cancel()


async def read_entries(
    client: PulsarClient,
    topic: str,
    start: Start,
    last: Position,
    *,
    read_compacted: bool = False,
    admin: AdminClient | None = None,
    queued_bytes: int | None = None,
    none_arrives: AllRead | None = None,
) -> AsyncGenerator[Entry, None]:
    """The entries from ``start`` (inclusive) to ``last``. Raises PulsarError, and TimeoutError when no entry arrives.

    If no entry arrives, ``admin`` shows whether brokers dispatch none of the remaining entries: then the stream ends.
    ``queued_bytes`` is the approximate size of the entries that wait for the caller (default: QUEUED_BYTES).
    ``none_arrives`` is another reason to end the stream when no entry arrives.
    """
    queue = EntryQueue()
    reader = await client.open_reader(topic, start, queue, read_compacted=read_compacted)
    behind = start._replace(entry_id=start.entry_id - 1) if isinstance(start, Position) else NOTHING

    async def all_read(behind: Position) -> bool:
        if none_arrives is not None and await none_arrives(behind):
            return True
        return admin is not None and await undispatched_end(client, admin, topic, behind, last) is not None

    try:
        found = read_on(reader, queue, last, behind, all_read, queued_bytes=queued_bytes)
        async with aclosing(found) as entries:
            async for entry in entries:
                yield entry
    finally:
        await reader.close()


async def read_entry(client: PulsarClient, topic: str, position: Position, admin: AdminClient) -> Entry | None:
    """The entry at ``position``; None if brokers do not dispatch it. Raises the errors of ``read_entries``."""
    queue = EntryQueue()
    reader = await client.open_reader(topic, position, queue)

    async def all_read(behind: Position) -> bool:
        return await undispatched_end(client, admin, topic, behind, position) is not None

    try:
        reader.flow(1)
        entry = await _next_entry(queue, position._replace(entry_id=position.entry_id - 1), all_read)
    finally:
        await reader.close()
    # Brokers send the next entry that they dispatch: it may have been written in the meantime.
    return entry if entry is not None and entry.position == position else None


async def read_on(
    reader: Reader,
    queue: EntryQueue,
    last: Position,
    behind: Position,
    all_read: AllRead,
    window: FlowWindow | None = None,
    *,
    queued_bytes: int | None = None,
) -> AsyncGenerator[Entry, None]:
    """The entries after ``behind``, up to ``last``, from a reader that was just opened for ``queue``.

    ``window`` counts the permits that the reader already has. Other tasks can run between entries, however many of them
    have already arrived. Raises the errors of ``read_entries``.
    """
    window, permits, message_bytes, slices = window or FlowWindow(), 1, 1, Slices()
    while True:
        await slices.pause()
        if window.top_up(reader, max(1, min(permits, (queued_bytes or QUEUED_BYTES) // message_bytes))):
            permits = min(MAX_PERMITS, permits * PERMITS_GROWTH)
        entry = await _next_entry(queue, behind, all_read)
        if entry is None:
            return
        window.used(entry)
        size_bytes = max(1, len(entry.payload) // entry.permits)
        message_bytes = max(size_bytes, (7 * message_bytes + size_bytes) // 8)
        behind = entry.position
        yield entry
        if entry.position >= last:
            return


async def _next_entry(queue: EntryQueue, behind: Position, all_read: AllRead) -> Entry | None:
    """The next entry; None if no other will arrive. Raises PulsarError and TimeoutError."""
    if not queue.entries and not await _wait_for_one(queue, behind, all_read):
        return None
    entry = queue.entries.popleft()
    if isinstance(entry, PulsarError):
        raise entry.with_traceback(None)  # all readers of a connection get the same error
    return entry


async def _wait_for_one(queue: EntryQueue, behind: Position, all_read: AllRead) -> bool:
    """True when an entry has arrived; False if none will arrive. Raises TimeoutError."""
    pauses = Backoff(SILENT_S, READ_TIMEOUT_S)  # a Pulsar that is slow must not get more and more requests
    async with asyncio.timeout(READ_TIMEOUT_S):
        while not await queue.wait(pauses.next_pause_s()):
            if await all_read(behind) and not queue.entries:
                return False
    return True


def _give_way(waiting: asyncio.Future[bool]) -> None:
    if not waiting.done():
        waiting.set_result(False)
