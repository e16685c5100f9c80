"""One partition of an internal topic in memory, behind the ports of the log. A newer producer fences the older one.

Its trimming cursor is before the first entry, unless a test removes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from gateway.coordination.partition import trimming_cursor
from gateway.coordination.partition.log_trimming import LogTrimming
from gateway.coordination.partition.trimming_cursor import TrimmingCursor
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.topics import InternalStats, Ledger
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ConnectionLostError, ProducerFencedError, PulsarError
from gateway.pulsar.position import Position
from gateway.pulsar.producer import SendListener
from gateway.pulsar.reader import Entry, EntryListener
from protocol.pulsar.entry import iter_messages
from protocol.pulsar.pulsar_commands_pb2 import MessageMetadata

LEDGER_ID = 3
BEFORE_ALL = {
    "kafka.snapshot.ledger": 0,
    "kafka.snapshot.entry": 0,
    "kafka.snapshot.timestamp": 1 << 62,
    "kafka.snapshot.bytes": 0,
}
"""A snapshot that is never too old."""


class FakeProducer:
    """Entries are written and acknowledged a moment later, or with `topic.holds` when the test says so."""

    max_message_bytes = 5 * 1024 * 1024

    def __init__(self, topic: FakeInternalTopic, listener: SendListener) -> None:
        self.topic, self.listener = topic, listener
        self.closed = False
        self.before_flush = asyncio.get_running_loop().call_soon
        self._sequence_id = -1
        self._held: list[tuple[int, Position]] = []

    def send(self, chunks: Sequence[bytes], *, num_messages: int, publish_time_ms: int) -> int:
        if self.closed:
            raise ConnectionLostError("closed")
        self._sequence_id += 1
        position = self.topic.write(b"".join(chunks), num_messages)
        self._held.append((self._sequence_id, position))
        if not self.topic.holds:
            asyncio.get_running_loop().call_soon(self.confirm)
        return self._sequence_id

    @property
    def holds_some(self) -> bool:
        return bool(self._held) and not self.closed

    def confirm(self) -> None:
        if self._held and not self.closed:
            self.listener.on_receipt(*self._held.pop(0))

    def lose(self, error: PulsarError | None = None) -> None:
        self.closed = True
        self.listener.on_producer_closed(error or ConnectionLostError("lost"))

    def fence(self) -> None:
        self.closed = True
        if not self.topic.fences_silently:
            self.lose(ProducerFencedError("fenced"))

    async def close(self) -> None:
        if self.topic.hangs:
            self.closed = True
            await asyncio.Event().wait()
        while self._held and not self.closed:
            self.confirm()
        self.closed = True


class FakeReader:
    def __init__(self, entries: list[Entry], listener: EntryListener) -> None:
        self._entries, self._listener = list(entries), listener

    def flow(self, permits: int) -> None:
        while self._entries:
            self._listener.on_entry(self._entries.pop(0))

    async def close(self) -> None:
        self._entries.clear()


class FakeSubscription:
    def __init__(self, topic: FakeInternalTopic) -> None:
        self._topic = topic

    async def ack_cumulative(self, position: Position, properties: Mapping[str, int]) -> None:
        await asyncio.sleep(0)
        if position > self._topic.acknowledged:
            self._topic.acknowledged, self._topic.cursor_properties = position, dict(properties)

    async def close(self) -> None:
        pass


class FakeInternalTopic:
    """A PulsarClient and an AdminClient for one topic."""

    def __init__(self) -> None:
        self.topics = self
        self.entries: list[Entry] = []
        self.history: list[Entry] = []
        """With those that were trimmed: so much a compacted ledger tells."""
        self.acknowledged = Position(LEDGER_ID, -1)
        self.cursor_properties = dict(BEFORE_ALL)
        self.subscription_failures: list[PulsarError] = []
        self.admin_failures: list[PulsarError] = []
        self.producers: list[FakeProducer] = []
        self.open_failures: list[PulsarError] = []
        self.holds = False
        self.hangs = False
        """The broker answers nothing any more."""
        self.fences_silently = False
        """As Pulsar does: a fenced producer learns it when it sends."""

    def write(self, payload: bytes, count: int) -> Position:
        position = Position(LEDGER_ID, len(self.history))
        metadata = MessageMetadata(
            producer_name="p", sequence_id=position.entry_id, publish_time=1, num_messages_in_batch=count
        )
        self.entries.append(Entry(position, None, metadata, memoryview(bytearray(payload))))
        self.history.append(self.entries[-1])
        return position

    def trim(self) -> None:
        """All that the cursor does not hold."""
        self.entries = [entry for entry in self.entries if entry.position > self.acknowledged]

    def records(self) -> list[list[tuple[bytes | None, bytes | None]]]:
        """Key and value of each message, by entry."""
        return [
            [
                (message.key, None if message.null_value else bytes(message.value))
                for message in iter_messages(entry.metadata, entry.payload, 1 << 20)
            ]
            for entry in self.entries
        ]

    async def open_producer(
        self, topic: str, listener: SendListener, *, fencing: bool, predecessor: Any = None
    ) -> FakeProducer:
        if self.open_failures:
            raise self.open_failures.pop(0)
        if predecessor is not None and self.producers[-1] is not predecessor:
            raise ProducerFencedError("another has the topic")
        assert fencing
        if self.producers and not self.producers[-1].closed:
            self.producers[-1].fence()
        self.producers.append(FakeProducer(self, listener))
        return self.producers[-1]

    async def open_reader(
        self, topic: str, start: Any, listener: EntryListener, *, read_compacted: bool = False
    ) -> FakeReader:
        assert read_compacted == (start == "earliest")
        stored = self.history if read_compacted else [entry for entry in self.entries if entry.position >= start]
        return FakeReader(stored, listener)

    async def open_subscription(self, topic: str, name: str, on_closed: Any) -> FakeSubscription:
        if self.subscription_failures:
            raise self.subscription_failures.pop(0)
        assert name == trimming_cursor.SUBSCRIPTION
        return FakeSubscription(self)

    async def internal_stats(self, topic: str) -> InternalStats:
        await asyncio.sleep(0)
        if self.admin_failures:
            raise self.admin_failures.pop(0)
        cursors = {"%7Etrimming": {"properties": self.cursor_properties}}
        return InternalStats((), Position(LEDGER_ID, -1), 0, 0, cursors, Ledger(-1, 0, 0))


MARK = (b"mark", None)


def new_trimming(topic: FakeInternalTopic, segment_bytes: int = 1 << 30, now_ms: int = 0) -> LogTrimming:
    client, admin = cast(PulsarClient, topic), cast(AdminClient, topic)
    cursor = TrimmingCursor(client, admin, "t")
    return LogTrimming(client, cursor, "t", MARK, lambda: now_ms, segment_bytes, asyncio.Lock(), Metrics())
