"""One partition of an internal topic in memory, behind the ports of the log. A newer producer fences the older one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from gateway.pulsar.errors import ConnectionLostError, ProducerFencedError, PulsarError
from gateway.pulsar.position import Position
from gateway.pulsar.producer import SendListener
from gateway.pulsar.reader import Entry, EntryListener
from protocol.pulsar.entry import iter_messages
from protocol.pulsar.pulsar_commands_pb2 import MessageMetadata

LEDGER_ID = 3


class FakeProducer:
    """What it sends is written and confirmed in the next moment, or when the test says if `topic.holds`."""

    max_message_bytes = 5 * 1024 * 1024

    def __init__(self, topic: FakeInternalTopic, listener: SendListener) -> None:
        self.topic, self.listener = topic, listener
        self.closed = False
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

    def confirm(self) -> None:
        if self._held and not self.closed:
            self.listener.on_receipt(*self._held.pop(0))

    def lose(self, error: PulsarError | None = None) -> None:
        self.closed = True
        self.listener.on_producer_closed(error or ConnectionLostError("lost"))

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


class FakeInternalTopic:
    """A PulsarClient for one topic."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.producers: list[FakeProducer] = []
        self.open_failures: list[PulsarError] = []
        self.holds = False
        self.hangs = False
        """The broker answers nothing any more."""

    def write(self, payload: bytes, count: int) -> Position:
        position = Position(LEDGER_ID, len(self.entries))
        metadata = MessageMetadata(
            producer_name="p", sequence_id=position.entry_id, publish_time=1, num_messages_in_batch=count
        )
        self.entries.append(Entry(position, None, metadata, memoryview(bytearray(payload))))
        return position

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
            self.producers[-1].lose(ProducerFencedError("fenced"))
        self.producers.append(FakeProducer(self, listener))
        return self.producers[-1]

    async def open_reader(
        self, topic: str, start: Any, listener: EntryListener, *, read_compacted: bool = False
    ) -> FakeReader:
        assert (start, read_compacted) == ("earliest", True)
        return FakeReader(self.entries, listener)
