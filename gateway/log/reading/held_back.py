"""Entries that brokers hold back: they follow an open transaction of a native producer, and readers get them when it
has ended. The admin API returns them.

The leader of the partition has to know which batches of idempotent producers are there: a retry of one would be
written again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import structlog

from gateway.log.bounds.log_end import LogEnd
from gateway.log.entries.decoding import converted
from gateway.log.entries.log_entry import LogEntry, from_pulsar, holds_batches
from gateway.log.entries.undispatched import backwards
from gateway.log.resources import Resources
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.admin.topics import InternalStats, StoredContent, StoredEntry
from gateway.pulsar.errors import ServiceNotReadyError
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry
from protocol.pulsar.pulsar_commands_pb2 import BrokerEntryMetadata, KeyValue, MessageMetadata

ANSWER_S = 2.0
MAX_ENTRIES = 10_000
"""They are looked up one by one, in some seconds. If there are more, idempotent producers wait for the transaction's
end: a batch that another gateway wrote, but did not acknowledge, may be anywhere among them."""
AT_ONCE = 16
MAX_UNANSWERED = 3

log = structlog.get_logger()


class HeldBackEntries:
    """Those of one log."""

    def __init__(
        self, pulsar_topic: str, resources: Resources, end: LogEnd[Any], on_entry: Callable[[Entry, LogEntry], None]
    ) -> None:
        """``on_entry`` gets the entries that gateways wrote, in order."""
        self._topic = pulsar_topic
        self._resources = resources
        self._end = end
        self._on_entry = on_entry

    async def read(self, stats: InternalStats, behind: Position) -> bool:
        """Read the entries from ``behind`` up to the last one; False if they are not held back.

        Raises PulsarError and TimeoutError, also if the broker does not return one of them: a gateway may have written
        it.
        """
        positions = [*islice(backwards(stats.ledgers, behind, stats.last_confirmed), MAX_ENTRIES + 1)]
        newest = await self._newest(positions)
        if newest is None or not newest.is_held_back:
            return False
        if len(positions) > MAX_ENTRIES:
            raise ServiceNotReadyError(f"{self._topic} has more than {MAX_ENTRIES} entries that are held back")
        positions.reverse()
        for first in range(0, len(positions), AT_ONCE):
            await self._read(positions[first : first + AT_ONCE])
        if newest.index is not None:
            self._end.written_ahead(newest.position, newest.index + 1)
        return True

    async def are_there(self, stats: InternalStats, behind: Position) -> bool:
        """Whether the entries from ``behind`` up to the last one are held back. Raises PulsarError and TimeoutError."""
        newest = await self._newest([*islice(backwards(stats.ledgers, behind, stats.last_confirmed), MAX_UNANSWERED)])
        return newest is not None and newest.is_held_back

    async def _newest(self, positions: list[Position]) -> StoredEntry | None:
        """The newest entry that the broker returns. It may not return the very last ones."""
        failure: Exception | None = None
        for position in positions[:MAX_UNANSWERED]:
            try:
                async with asyncio.timeout(ANSWER_S):
                    newest = await self._resources.admin.topics.entry(self._topic, position)
            except (AdminError, TimeoutError) as error:
                log.info("cannot look up an entry", topic=self._topic, position=position, error=str(error))
                failure = error
            else:
                if newest is not None:
                    return newest
        if failure is not None:
            raise failure
        return None

    async def _read(self, positions: list[Position]) -> None:
        convert = partial(from_pulsar, max_bytes=self._max_bytes)
        for entry in await asyncio.gather(*(self._of_gateway(position) for position in positions)):
            if entry is not None:
                read = await converted(self._resources.decoding, convert, entry, self._topic)
                if read is not None:
                    self._on_entry(entry, read)

    async def _of_gateway(self, position: Position) -> Entry | None:
        """The entry, if a gateway wrote it: the payloads of others may be large, and are not needed."""
        topics = self._resources.admin.topics
        async with asyncio.timeout(ANSWER_S):
            described = await topics.content(self._topic, position, payload=False)
            if described is None or not holds_batches(_as_read(described)):
                return None
            content = await topics.content(self._topic, position)
        return None if content is None else _as_read(content)

    @property
    def _max_bytes(self) -> int:
        return self._resources.limits.max_decompressed_bytes


def _as_read(content: StoredContent) -> Entry:
    """The entry as a reader gets it."""
    stored = content.entry
    properties = [KeyValue(key=key.encode(), value=value.encode()) for key, value in content.properties.items()]
    metadata = MessageMetadata(
        producer_name=content.producer_name, sequence_id=content.sequence_id, publish_time=0, properties=properties,
        num_messages_in_batch=stored.num_messages,
    )  # fmt: skip
    if stored.marker_type is not None:
        metadata.marker_type = stored.marker_type
    broker_metadata = None if stored.index is None else BrokerEntryMetadata(index=stored.index)
    return Entry(stored.position, broker_metadata, metadata, memoryview(bytearray(content.payload)))
