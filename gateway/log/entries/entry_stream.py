"""The entries of a topic, from one position to another, read once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from gateway.fan_out import Slices
from gateway.log.entries.undispatched import SILENT_S, undispatched_end
from gateway.pulsar.admin import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.flow_window import FlowWindow
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry, Reader, Start

MAX_PERMITS = 1_000
PERMITS_GROWTH = 4
"""To begin with, one message is asked for: most want one entry, and the broker reads a hundred if it may."""
READ_TIMEOUT_S = 10.0
NOTHING = Position(-1, -1)
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

    Raises as ``read_entries`` does. However many have come already, the event loop serves others in between.
    """
    window, permits, slices = FlowWindow(), 1, Slices()
    while True:
        await slices.pause()
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
