"""A broker that costs next to nothing: it answers the requests that open a log, and acknowledges what is sent.

The entries of topics in `kept` can be read.
"""

import asyncio
import struct
from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.admin.topics import Ledger, ManagedLedgerInfo, PartitionedTopic, StoredEntry
from gateway.pulsar.connection import Connection
from gateway.pulsar.position import Position
from protocol.pulsar.frames import BROKER_METADATA_MAGIC, encode_command, parse_command
from protocol.pulsar.pulsar_commands_pb2 import (
    BaseCommand,
    BrokerEntryMetadata,
    CommandConnected,
    CommandGetLastMessageIdResponse,
    CommandMessage,
    CommandPong,
    CommandProducerSuccess,
    CommandSend,
    CommandSendReceipt,
    CommandSuccess,
    MessageIdData,
)

LEDGER_ID = 7
MAX_MESSAGE_BYTES = 5 << 20
SIZE_BYTES = 4
ANSWERS: dict[int, BaseCommand] = {
    BaseCommand.CONNECT: BaseCommand(
        type=BaseCommand.CONNECTED,
        connected=CommandConnected(server_version="fake", max_message_size=MAX_MESSAGE_BYTES),
    ),
    BaseCommand.PING: BaseCommand(type=BaseCommand.PONG, pong=CommandPong()),
}
"""To commands that are always answered alike."""
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
        self.kept: dict[str, list[KeptEntry]] = {}
        """The entries of these topics. A topic is added by its name in Pulsar, before it is written to."""
        self.delivered = 0
        """The number of entries that were sent to readers."""
        self._readers: dict[int, KeptReader] = {}

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
        answers: list[bytes] = []
        for frame in _frames(written):
            answer = self._answer(frame)
            answers += self._delivered(frame) if answer is None else [encode_command(answer)]
        return b"".join(answers)

    def _delivered(self, frame: memoryview) -> list[bytes]:
        """The entries that a FLOW permits."""
        flow = parse_command(frame)[0].flow
        reader = self._readers.get(flow.consumer_id)
        frames = [] if reader is None else reader.deliver(flow.consumer_id, flow.message_permits)
        self.delivered += len(frames)
        return frames

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
        if command.type in ANSWERS:
            return ANSWERS[command.type]
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
            subscribe = command.subscribe
            self._topics[subscribe.consumer_id] = subscribe.topic
            first = max(0, subscribe.start_message_id.entry_id)
            if subscribe.topic in self.kept and first < len(self.kept[subscribe.topic]):
                self._readers[subscribe.consumer_id] = KeptReader(self.kept[subscribe.topic], first)
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
        if topic in self.kept:
            self.kept[topic].append(KeptEntry(send.num_messages, bytes(frame[end:])))
        receipt = CommandSendReceipt(
            producer_id=send.producer_id, sequence_id=send.sequence_id,
            message_id=MessageIdData(ledger_id=LEDGER_ID, entry_id=entry_id),
        )  # fmt: skip
        return BaseCommand(type=BaseCommand.SEND_RECEIPT, send_receipt=receipt)


class KeptEntry(NamedTuple):
    num_messages: int
    data: bytes
    """All that follows the command in a SEND frame."""


class KeptReader:
    """Sends one reader what it permits."""

    def __init__(self, entries: list[KeptEntry], first: int) -> None:
        self._entries = entries
        self._next = first
        self._index = sum(entry.num_messages for entry in entries[:first]) - 1
        self._permits = 0

    def deliver(self, consumer_id: int, permits: int) -> list[bytes]:
        self._permits += permits
        frames = []
        while self._permits > 0 and self._next < len(self._entries):
            entry = self._entries[self._next]
            self._permits -= entry.num_messages
            self._index += entry.num_messages
            position = MessageIdData(ledger_id=LEDGER_ID, entry_id=self._next)
            message = CommandMessage(consumer_id=consumer_id, message_id=position)
            command = BaseCommand(type=BaseCommand.MESSAGE, message=message).SerializeToString()
            index = BrokerEntryMetadata(index=self._index).SerializeToString()
            rest = struct.pack(">HI", BROKER_METADATA_MAGIC, len(index)) + index + entry.data
            frames.append(struct.pack(">II", SIZE_BYTES + len(command) + len(rest), len(command)) + command + rest)
            self._next += 1
        return frames


class FakeAdminTopics:
    """Topics that nobody had written to when their logs were opened."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self.partitions: dict[str, int] = {}
        """The number of partitions of each topic, by the topic's name."""

    async def partitioned(self, topic: str) -> PartitionedTopic:
        if topic not in self.partitions:
            raise AdminError(404, "no such topic")
        return PartitionedTopic(self.partitions[topic], {})

    async def list_partitioned(self, namespace: str) -> list[str]:
        return [name for name in self.partitions if name.startswith(f"persistent://{namespace}/")]

    async def list_topics(self, namespace: str) -> list[str]:
        return []

    async def managed_ledger(self, topic: str) -> ManagedLedgerInfo:
        return ManagedLedgerInfo(frozenset({LEDGER_ID}), frozenset(), {})

    async def managed_ledger_properties(self, topic: str) -> dict[str, str]:
        return {}

    async def entry(self, topic: str, position: Position) -> StoredEntry:
        """The first entry of the topic: the gateway counts from its index."""
        return StoredEntry(position, self._broker.first_index[topic], 1)

    async def trim(self, topic: str) -> None:
        """Nothing is deleted."""

    async def internal_stats(self, topic: str) -> Any:
        nothing, ledger = SimpleNamespace(ledger_id=-1), Ledger(LEDGER_ID, 0, 0)
        return SimpleNamespace(
            pending_adds=0, entries_added=0, ledgers=(ledger,), compacted_ledger=nothing, cursors={},
            last_confirmed=Position(-1, -1),
        )  # fmt: skip


def _frames(chunks: list[Chunk]) -> list[memoryview]:
    """Frames without their sizes."""
    data = memoryview(b"".join(chunks))
    frames = []
    while data:
        (size,) = struct.unpack_from(">I", data)
        frames.append(data[SIZE_BYTES : SIZE_BYTES + size])
        data = data[SIZE_BYTES + size :]
    return frames
