"""A broker that costs next to nothing: it answers the requests that open a log, and acknowledges what is sent."""

import asyncio
import struct
from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

from gateway.pulsar.admin_http import AdminError
from gateway.pulsar.admin_topics import ManagedLedgerInfo, PartitionedTopic, StoredEntry
from gateway.pulsar.connection import Connection
from gateway.pulsar.position import Position
from protocol.pulsar.frames import encode_command, parse_command
from protocol.pulsar.pulsar_commands_pb2 import (
    BaseCommand,
    CommandConnected,
    CommandGetLastMessageIdResponse,
    CommandProducerSuccess,
    CommandSend,
    CommandSendReceipt,
    CommandSuccess,
    MessageIdData,
)

LEDGER_ID = 7
MAX_MESSAGE_BYTES = 5 << 20
SIZE_BYTES = 4
Chunk = bytes | bytearray | memoryview


class FakeBroker(asyncio.Transport):
    """The transport of a gateway's connection to the broker. Entries are acknowledged when the scene says so."""

    def __init__(self) -> None:
        super().__init__()
        self.connection: Connection | None = None
        self.writes = 0
        """The number of system calls that a socket would have needed."""
        self.entries = 0
        self._written: list[Chunk] = []
        self._topics: dict[int, str] = {}
        """Topic of each producer and consumer."""
        self._next_entry: Counter[str] = Counter()
        self.first_index: dict[str, int] = {}
        """The index of the last message of each topic's first entry."""

    # What the gateway does

    def write(self, data: Chunk) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.writes += 1
        self._written += list_of_data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no limit."""

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """The broker sends too little to need a pause."""

    def resume_reading(self) -> None:
        """There is never a pause."""

    # What it does itself

    def answers(self) -> bytes:
        """The responses to everything that was written since the last call."""
        written, self._written = self._written, []
        answers = [self._answer(frame) for frame in _frames(written)]
        return b"".join(encode_command(answer) for answer in answers if answer is not None)

    def say(self, data: bytes) -> None:
        """Pass data to the gateway like a socket: into the buffer that the connection provides."""
        assert self.connection is not None
        left = memoryview(data)
        while left:
            buffer = self.connection.get_buffer(-1)
            size = min(len(buffer), len(left))
            buffer[:size] = left[:size]
            left = left[size:]
            self.connection.buffer_updated(size)

    def _answer(self, frame: memoryview) -> BaseCommand | None:
        command, end = parse_command(frame)
        if command.type == BaseCommand.SEND:
            return self.take(command.send, frame, end)
        if command.type == BaseCommand.CONNECT:
            connected = CommandConnected(server_version="fake", max_message_size=MAX_MESSAGE_BYTES)
            return BaseCommand(type=BaseCommand.CONNECTED, connected=connected)
        if command.type == BaseCommand.PRODUCER:
            request_id = command.producer.request_id
            self._topics[command.producer.producer_id] = command.producer.topic
            success = CommandProducerSuccess(request_id=request_id, producer_name=f"fake-{request_id}")
            return BaseCommand(type=BaseCommand.PRODUCER_SUCCESS, producer_success=success)
        if command.type == BaseCommand.GET_LAST_MESSAGE_ID:
            topic = self._topics[command.get_last_message_id.consumer_id]
            last = MessageIdData(ledger_id=LEDGER_ID, entry_id=self._next_entry[topic] - 1)
            found = CommandGetLastMessageIdResponse(
                request_id=command.get_last_message_id.request_id, last_message_id=last
            )
            return BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, get_last_message_id_response=found)
        if command.type == BaseCommand.SUBSCRIBE:
            self._topics[command.subscribe.consumer_id] = command.subscribe.topic
        for field in ("subscribe", "close_producer", "close_consumer", "seek"):
            if command.HasField(cast(Any, field)):
                done = CommandSuccess(request_id=getattr(command, field).request_id)
                return BaseCommand(type=BaseCommand.SUCCESS, success=done)
        return None

    def take(self, send: CommandSend, frame: memoryview, end: int) -> BaseCommand:
        """Write an entry, which follows the command's ``end`` in the frame. Returns the receipt."""
        topic = self._topics[send.producer_id]
        entry_id = self._next_entry[topic]
        self.first_index.setdefault(topic, send.num_messages - 1)
        self._next_entry[topic] += 1
        self.entries += 1
        receipt = CommandSendReceipt(
            producer_id=send.producer_id, sequence_id=send.sequence_id,
            message_id=MessageIdData(ledger_id=LEDGER_ID, entry_id=entry_id),
        )  # fmt: skip
        return BaseCommand(type=BaseCommand.SEND_RECEIPT, send_receipt=receipt)


class FakeAdminTopics:
    """Topics that nobody had written to when their logs were opened."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self.names: set[str] = set()
        """Names of partitioned topics, with one partition each."""

    async def partitioned(self, topic: str) -> PartitionedTopic:
        if topic not in self.names:
            raise AdminError(404, "no such topic")
        return PartitionedTopic(1, {})

    async def managed_ledger(self, topic: str) -> ManagedLedgerInfo:
        return ManagedLedgerInfo(frozenset({LEDGER_ID}), frozenset(), {})

    async def managed_ledger_properties(self, topic: str) -> dict[str, str]:
        return {}

    async def entry(self, topic: str, position: Position) -> StoredEntry:
        """The first entry of the topic: the gateway counts from its index."""
        return StoredEntry(position, self._broker.first_index[topic], None, 1, None)

    async def internal_stats(self, topic: str) -> Any:
        return SimpleNamespace(pending_adds=0, entries_added=0, ledgers=())


def _frames(chunks: list[Chunk]) -> list[memoryview]:
    """Frames without their sizes."""
    data = memoryview(b"".join(chunks))
    frames = []
    while data:
        (size,) = struct.unpack_from(">I", data)
        frames.append(data[SIZE_BYTES : SIZE_BYTES + size])
        data = data[SIZE_BYTES + size :]
    return frames
