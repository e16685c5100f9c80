"""Asks a reader whether brokers dispatch any of some entries: the admin API cannot return every entry.

The cursor of a reader stands behind the entries that the broker has read for it. Where it waits for new entries, the
broker has handed all earlier ones that it dispatches to the connection: answers to later requests arrive after them.
Measured on Pulsar 4.0.7, and read in its PersistentDispatcherSingleActiveConsumer.
"""

from __future__ import annotations

import asyncio

from gateway.backoff import Backoff
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry, Start

PERMITS = 100
"""Entries that are not dispatched use none, and a broker reads no more than this number at once."""
PATIENCE_S = 3.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5


class _FirstEntry:
    """An EntryListener that keeps the position of the first entry."""

    def __init__(self) -> None:
        self.position: Position | None = None

    def on_entry(self, entry: Entry) -> None:
        self.position = self.position or entry.position

    def on_reader_closed(self, error: PulsarError) -> None: ...


async def reader_gets_none(
    client: PulsarClient, admin: AdminClient, topic: str, behind: Position, last: Position
) -> bool:
    """Whether brokers dispatch no entry after ``behind``, up to ``last``. Raises PulsarError.

    False also if that is not known: the entries may only be late.
    """
    first = _FirstEntry()
    start: Start = behind._replace(entry_id=behind.entry_id + 1) if behind.ledger_id >= 0 else "earliest"
    try:
        async with asyncio.timeout(PATIENCE_S):
            reader = await client.open_reader(topic, start, first)
            try:
                reader.flow(PERMITS)
                pauses = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
                while first.position is None and not await _waits_behind(admin, topic, reader.subscription, last):
                    await pauses.pause()
                await reader.last_position()  # sent entries arrive before the answer
                is_open = not reader.closed
            finally:
                await reader.close()
    except TimeoutError:
        return False
    return is_open and (first.position is None or first.position > last)


async def _waits_behind(admin: AdminClient, topic: str, subscription: str, last: Position) -> bool:
    waits_at = (await admin.topics.internal_stats(topic)).waits_at(subscription)
    return waits_at is not None and waits_at > last
