"""Entries that brokers hold back: they follow an open transaction of a native producer, and readers get them when it
has ended. The admin API returns them.

Whoever leads the partition now has to know which batches of idempotent producers are there: a retry of one would be
written again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

from gateway.log.bounds.log_end import LogEnd
from gateway.log.entries.decoding import converted
from gateway.log.entries.log_entry import LogEntry, from_pulsar, holds_batches
from gateway.log.entries.undispatched import backwards
from gateway.log.resources import Resources
from gateway.pulsar.admin_topics import InternalStats, StoredContent
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry
from protocol.pulsar.pulsar_commands_pb2 import BrokerEntryMetadata, KeyValue, MessageMetadata

ANSWER_S = 5.0
MAX_ENTRIES = 1_000
"""More than one gateway may have had in flight: what is before was acknowledged, and is not sent again."""
AT_ONCE = 16


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

        Raises PulsarError and TimeoutError.
        """
        last = stats.last_confirmed
        async with asyncio.timeout(ANSWER_S):
            newest = await self._resources.admin.topics.entry(self._topic, last)
        if newest is None or not newest.is_held_back:
            return False
        positions = [*islice(backwards(stats.ledgers, behind, last), MAX_ENTRIES)]
        positions.reverse()
        for first in range(0, len(positions), AT_ONCE):
            await self._read(positions[first : first + AT_ONCE])
        if newest.index is not None:
            self._end.written_ahead(last, newest.index + 1)
        return True

    async def _read(self, positions: list[Position]) -> None:
        topics, convert = self._resources.admin.topics, partial(from_pulsar, max_bytes=self._max_bytes)
        async with asyncio.timeout(ANSWER_S):
            found = await asyncio.gather(*(topics.content(self._topic, position) for position in positions))
        for content in found:
            entry = None if content is None else _as_read(content)
            if entry is not None and holds_batches(entry):
                read = await converted(self._resources.decoding, convert, entry, self._topic)
                if read is not None:
                    self._on_entry(entry, read)

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
