"""Looks up single entries: their index, hence their offsets.

The admin API returns them without the payload. But brokers (4.0.7) decompress the requested entry, and never answer
when that fails, as with compressed messages that are chunked or encrypted. And they return the entry's properties in an
HTTP header, and status 500 if that has more than 8 KB, as with large checkpoints. Such entries are read instead.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

import structlog

from gateway.log.bounds.empty_end import empty_end
from gateway.log.entries.entry_stream import read_entries
from gateway.log.entries.stored_entries import ANSWER_S, FAILED, end_at, undispatched_entry
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.admin.topics import StoredEntry
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.position import Position

READ_FOR_S = 60.0
"""After this time the admin API is tried again: it may only have been slow."""

log = structlog.get_logger()


class EntryLookup:
    """Methods raise PulsarError and TimeoutError."""

    def __init__(self, client: PulsarClient, admin: AdminClient) -> None:
        self.admin = admin
        self._client = client
        self._asked_again_at: dict[str, float] = {}
        """When to try the admin API again, for topics where it did not answer."""

    async def entry(self, topic: str, position: Position) -> StoredEntry | None:
        """The entry at ``position``; None if there is none."""
        if time.monotonic() >= self._asked_again_at.get(topic, 0):
            try:
                async with asyncio.timeout(ANSWER_S):
                    return await self.admin.topics.entry(topic, position)
            except TimeoutError:
                log.info("the admin API does not return an entry: reading it instead", topic=topic, position=position)
                self._read_for_a_while(topic)
            except AdminError as error:
                if error.status != FAILED:
                    raise
        return await self._read(topic, position)

    def _read_for_a_while(self, topic: str) -> None:
        now_s = time.monotonic()
        self._asked_again_at = {known: at_s for known, at_s in self._asked_again_at.items() if at_s > now_s}
        self._asked_again_at[topic] = now_s + READ_FOR_S

    async def _read(self, topic: str, position: Position) -> StoredEntry | None:
        async with aclosing(read_entries(self._client, topic, position, position, admin=self.admin)) as entries:
            async for entry in entries:
                found = StoredEntry(position, entry.index, entry.num_messages)
                return found if entry.position == position else None
        return await undispatched_entry(self.admin, topic, position)

    async def end(self, topic: str, last: Position) -> int:
        """The offset after the last entry, which is at ``last``."""
        entry = None if last.entry_id < 0 else await self.entry(topic, last)
        if entry is None:
            return await empty_end(self.admin, topic)
        return await end_at(self.admin, topic, last, entry.index)
