"""One Pulsar topic in memory, behind the ports of the storage layer. The test decides when the broker does what."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from gateway.log.entries.log_entry import KAFKA_FORMAT
from gateway.log.entries.message_entry import FORMAT_PROPERTY
from gateway.pulsar.admin.topics import (
    COMPACTION_CURSOR,
    InternalStats,
    Ledger,
    ManagedLedgerInfo,
    StoredContent,
    StoredEntry,
)
from gateway.pulsar.errors import ConnectionLostError, PulsarError
from gateway.pulsar.position import Position
from gateway.pulsar.producer import SendListener
from gateway.pulsar.reader import Entry, EntryListener, _start_message_id
from protocol.pulsar.pulsar_commands_pb2 import BrokerEntryMetadata, KeyValue, MessageMetadata


class FakeProducer:
    """Keeps what was sent until the test lets the broker write and acknowledge it."""

    def __init__(
        self, topic: FakeTopic, listener: SendListener, name: str, predecessor: FakeProducer | None = None
    ) -> None:
        self.topic, self.listener, self.name = topic, listener, name
        self.closed = False
        self.max_message_bytes = 1 << 20
        self.connection = SimpleNamespace(writable=True, writable_event=asyncio.Event(), send_window=None)
        self.before_flush = asyncio.get_running_loop().call_soon
        self.sent: dict[int, tuple[bytes, int]] = {}
        self.fields: dict[int, bytes] = {}
        """Fields of the entries' metadata, as they were sent."""
        self._sequence_id: int = -1 if predecessor is None else predecessor._sequence_id

    def send(self, chunks: Sequence[Any], *, num_messages: int, properties: bytes = b"", **_: object) -> int:
        assert not self.closed
        self._sequence_id += 1
        self.sent[self._sequence_id] = b"".join(map(bytes, chunks)), num_messages
        self.fields[self._sequence_id] = properties
        return self._sequence_id

    def write(self, sequence_id: int) -> Position:
        """The broker writes the entry."""
        data, count = self.sent[sequence_id]
        position = self.topic.write(data, count, self.name, sequence_id)
        metadata = self.topic.entries[-1][3]
        metadata.ClearField("properties")
        metadata.MergeFromString(self.fields[sequence_id])
        return position

    def confirm(self, sequence_id: int, position: Position) -> None:
        self.listener.on_receipt(sequence_id, position)

    def write_and_confirm(self, sequence_id: int) -> None:
        self.confirm(sequence_id, self.write(sequence_id))

    def lose(self) -> None:
        self.closed = True
        self.listener.on_producer_closed(ConnectionLostError("lost"))

    async def close(self) -> None:
        self.closed = True


class FakeReader:
    """Delivers while it has permits."""

    def __init__(self, topic: FakeTopic, listener: EntryListener, next_entry: int, read_compacted: bool) -> None:
        self.topic, self.listener, self.next_entry = topic, listener, next_entry
        self.first_entry = next_entry
        self.read_compacted = read_compacted
        self.permits = 0
        self.closed = False
        self.subscription = f"reader-{len(topic.readers)}"

    @property
    def waits(self) -> bool:
        """Whether the broker has read all entries for it, and waits for new ones."""
        return not self.closed and self.permits > 0 and self.next_entry >= len(self.topic.entries)

    def hand_over(self, listener: EntryListener) -> None:
        self.listener = listener

    def flow(self, permits: int) -> None:
        self.permits += permits
        asyncio.get_running_loop().call_soon(self.deliver)

    def deliver(self) -> None:
        while not self.closed and self.permits > 0 and self.next_entry < len(self.topic.entries):
            entry = self.topic.entry_at(self.next_entry)
            if self.topic.is_held_back(entry.position):
                return
            self.next_entry += 1
            if self.read_compacted and entry.position in self.topic.compacted_away:
                continue
            if entry.is_marker or entry.position in self.topic.aborted:
                continue
            self.permits -= entry.num_messages
            self.listener.on_entry(entry)

    async def last_position(self) -> Position:
        if not self.read_compacted:
            unread = {each for each, *_ in self.topic.entries if self.topic.is_held_back(each)} | self.topic.aborted
            left = [each for each, *_ in self.topic.entries if each not in unread]
            return left[-1] if left else self.topic.last if not unread else Position(self.topic.ledger_id, -1)
        left = [each for each, *_ in self.topic.entries if each not in self.topic.compacted_away]
        return left[-1] if left else Position(-1, -1)

    async def close(self) -> None:
        self.closed = True

    def lose(self, error: PulsarError) -> None:
        self.closed = True
        self.listener.on_reader_closed(error)


class FakeTopic:
    """A PulsarClient and an AdminClient for one topic."""

    producer_class = FakeProducer

    def __init__(self) -> None:
        self.entries: list[tuple[Position, int, bytes, MessageMetadata]] = []
        """(position, index of the last message, payload, metadata)."""
        self.ledger_id, self.entry_id, self.next_index = 3, 0, 0
        self.producers: list[FakeProducer] = []
        self.readers: list[FakeReader] = []
        self.delivers = True
        self.held_back_from: Position | None = None
        """An open transaction of a native producer begins here."""
        self.aborted: set[Position] = set()
        """Messages of aborted transactions."""
        self.pending_adds = 0
        self.open_failures: list[PulsarError] = []
        self.properties: dict[str, str] = {}
        self.cursors: list[str] = []
        self.compacted_ledger_id = -1
        self.compacted_to = Position(-1, -1)
        """Compaction has read the entries up to this one, and those in `compacted_away`."""
        self.compacted_away: set[Position] = set()
        """Readers of the compacted topic do not get these."""
        self.topics = self  # as an AdminClient

    @property
    def last(self) -> Position:
        return self.entries[-1][0] if self.entries else Position(self.ledger_id, -1)

    def is_held_back(self, position: Position) -> bool:
        return self.held_back_from is not None and position >= self.held_back_from

    def release(self) -> None:
        """The open transaction has ended."""
        self.held_back_from = None
        for reader in self.readers:
            asyncio.get_running_loop().call_soon(reader.deliver)

    async def last_position(self, topic: str, *, read_compacted: bool = False) -> Position:
        return await FakeReader(self, cast(EntryListener, None), 0, read_compacted).last_position()

    def write(self, data: bytes, count: int, producer_name: str, sequence_id: int, *, native: bool = False) -> Position:
        position = Position(self.ledger_id, self.entry_id)
        self.entry_id += 1
        self.next_index += count
        properties = [] if native else [KeyValue(key=FORMAT_PROPERTY.encode(), value=KAFKA_FORMAT.encode())]
        metadata = MessageMetadata(
            producer_name=producer_name, sequence_id=sequence_id, publish_time=1, properties=properties,
            num_messages_in_batch=count,
        )  # fmt: skip
        self.entries.append((position, self.next_index - 1, data, metadata))
        if self.delivers:
            for reader in self.readers:
                asyncio.get_running_loop().call_soon(reader.deliver)
        return position

    def write_piece(self, data: bytes, uuid: bytes, number: int, total: int) -> None:
        """Write one chunk of a message of a native producer."""
        self.write(data, 1, "native", number, native=True)
        metadata = self.entries[-1][3]
        metadata.ClearField("num_messages_in_batch")
        metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg = uuid, number, total
        metadata.total_chunk_msg_size = len(data) * total

    def write_marker(self, count: int = 1) -> Position:
        """Brokers do not dispatch it, but name it as the last entry, as they do with markers of native producers."""
        position = self.write(b"", count, "native", 0, native=True)
        self.entries[-1][3].marker_type = 10
        return position

    def roll_over(self) -> None:
        self.ledger_id, self.entry_id = self.ledger_id + 1, 0

    def entry_at(self, number: int) -> Entry:
        position, index, data, metadata = self.entries[number]
        return Entry(position, BrokerEntryMetadata(index=index), metadata, memoryview(bytearray(data)))

    async def open_producer(
        self, topic: str, listener: SendListener, *, predecessor: FakeProducer | None = None, name: str = ""
    ) -> FakeProducer:
        if self.open_failures:
            raise self.open_failures.pop(0)
        name = predecessor.name if predecessor is not None else name or f"producer-{len(self.producers)}"
        self.producers.append(self.producer_class(self, listener, name, predecessor))
        return self.producers[-1]

    async def open_reader(
        self,
        topic: str,
        start: Any,
        listener: EntryListener,
        *,
        inclusive: bool = True,
        read_compacted: bool = False,
    ) -> FakeReader:
        _start_message_id(start)  # Pulsar's protocol does not have all numbers
        first = 0
        if isinstance(start, Position):
            before = [p for p, *_ in self.entries if p < start or (p == start and not inclusive)]
            first = len(before)
        self.readers.append(FakeReader(self, listener, first, read_compacted))
        return self.readers[-1]

    async def trim(self, topic: str) -> None:
        """Retention keeps everything."""

    async def internal_stats(self, topic: str) -> InternalStats:
        ids = [position.ledger_id for position, *_ in self.entries]
        ledgers = [Ledger(each, ids.count(each), size_bytes=0) for each in sorted({*ids, self.ledger_id})]
        compacted = Ledger(self.compacted_ledger_id, 0, 0)
        behind = f"{self.last.ledger_id}:{self.last.entry_id + 1}"
        readers = {each.subscription: {"readPosition": behind, "waitingReadOp": each.waits} for each in self.readers}
        return InternalStats(
            pending_adds=self.pending_adds, entries_added=len(self.entries), ledgers=tuple(ledgers),
            compacted_ledger=compacted, last_confirmed=self.last,
            cursors={name: {} for name in self.cursors} | readers | self._compaction(),
        )  # fmt: skip

    def _compaction(self) -> dict[str, dict[str, str]]:
        ledger_id, entry_id = max(self.compacted_to, *self.compacted_away, Position(-1, -1))
        return {COMPACTION_CURSOR: {"markDeletePosition": f"{ledger_id}:{entry_id}"}} if ledger_id >= 0 else {}

    async def managed_ledger_properties(self, topic: str) -> dict[str, str]:
        return self.properties

    async def managed_ledger(self, topic: str) -> ManagedLedgerInfo:
        ledger_ids = {self.ledger_id, *(position.ledger_id for position, *_ in self.entries)}
        cursors = {*self.cursors, *(["__compaction"] if self.compacted_ledger_id >= 0 else [])}
        return ManagedLedgerInfo(frozenset(ledger_ids), frozenset(cursors), self.properties)

    async def put_properties(self, topic: str, properties: dict[str, str]) -> None:
        self.properties = self.properties | properties | {"index": str(self.next_index - 1)}

    async def remove_property(self, topic: str, key: str) -> None:
        self.properties = {name: value for name, value in self.properties.items() if name != key}

    async def entry(self, topic: str, position: Position) -> Any:
        for at, index, _, metadata in self.entries:
            if at == position:
                marker_type = metadata.marker_type if metadata.HasField("marker_type") else None
                flags = position in self.aborted, self.is_held_back(position)
                return StoredEntry(position, index, metadata.num_messages_in_batch, marker_type, *flags)
        return None

    async def content(self, topic: str, position: Position, *, payload: bool = True) -> StoredContent | None:
        for at, _, data, metadata in self.entries:
            if at == position:
                properties = {each.key.decode(): each.value.decode() for each in metadata.properties}
                stored = await self.entry(topic, position)
                payload_bytes = data if payload else b""
                return StoredContent(
                    stored, metadata.producer_name, metadata.sequence_id, properties, payload_bytes
                )
        return None
