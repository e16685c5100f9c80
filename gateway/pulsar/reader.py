"""Reads a topic's entries from a position, without leaving state in the broker."""

import secrets
from typing import Literal, Protocol

from gateway.pulsar.connection import Connection
from gateway.pulsar.consumer import Consumer
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position
from protocol.pulsar.frames import encode_flow, parse_message
from protocol.pulsar.pulsar_commands_pb2 import (
    BrokerEntryMetadata,
    CommandMessage,
    CommandSubscribe,
    MessageIdData,
    MessageMetadata,
)

Start = Position | Literal["earliest", "latest"]

MAX_COUNTED = 1 << 24
"""The maximum number of messages in one entry. A larger number from a producer is wrong, but brokers count it as
permits."""
_MAX_INT32 = 2**31 - 1
_LATEST = Position((1 << 63) - 1, (1 << 63) - 1)
_EARLIEST = Position(-1, -1)


class Entry:
    """One entry as the broker stores it: a single message or a batch of them."""

    __slots__ = ("_broker_metadata", "is_kafka_format", "metadata", "payload", "permits", "position")

    def __init__(
        self,
        position: Position,
        broker_metadata: BrokerEntryMetadata | None,
        metadata: MessageMetadata,
        payload: memoryview,
    ) -> None:
        self.position = position
        self.metadata = metadata
        self.payload = payload
        """Mutable, and owned by the receiver."""
        messages = metadata.num_messages_in_batch
        self.permits = messages if 0 < messages <= MAX_COUNTED else 1
        """The number of the reader's permits that the entry uses."""
        self._broker_metadata = broker_metadata
        self.is_kafka_format: bool | None = None
        """Kept for the log, because properties are slow to read: whether they say that the payload is record batches.
        None if that was not checked."""

    @property
    def index(self) -> int | None:
        """The broker entry index of the entry's last message. None if the broker does not store or send it."""
        broker_metadata = self._broker_metadata
        if broker_metadata is None or not broker_metadata.HasField("index"):
            return None
        return broker_metadata.index

    @property
    def num_messages(self) -> int:
        """The number of messages, and therefore of indexes, that the entry counts for."""
        return self.metadata.num_messages_in_batch

    @property
    def publish_time_ms(self) -> int:
        return self.metadata.publish_time

    @property
    def is_marker(self) -> bool:
        """The entry was written by a broker for replication or transactions; it carries no message."""
        return self.metadata.HasField("marker_type")

    def with_payload(self, metadata: MessageMetadata, payload: memoryview) -> "Entry":
        """An entry with this position and other content."""
        return Entry(self.position, self._broker_metadata, metadata, payload)

    @property
    def properties(self) -> dict[str, str]:
        return {p.key.decode(errors="replace"): p.value.decode(errors="replace") for p in self.metadata.properties}


class EntryListener(Protocol):
    """Receives a reader's entries. Called from the event loop; must not block."""

    def on_entry(self, entry: Entry) -> None: ...

    def on_reader_closed(self, error: PulsarError) -> None:
        """The reader is dead; no entry follows. Open another reader at the next position."""


class Reader(Consumer):
    """Reads with its own non-durable, exclusive subscription."""

    def __init__(self, topic: str, connection: Connection, listener: EntryListener) -> None:
        super().__init__(topic, connection)
        self.subscription = f"kafka-gateway-reader-{secrets.token_hex(8)}"
        self._listener = listener
        self._dropped: Start | None = None
        """The start entry, if it is not inclusive: the broker sends it nevertheless."""
        self._surplus = 0
        """The number of permits that the broker counts beyond those granted; an int32, which overflows."""

    async def open(self, start: Start, *, inclusive: bool, read_compacted: bool) -> None:
        """Subscribe. Raises PulsarError; the broker then holds no subscription.

        To the broker, a start after the topic's last entry means "latest": the end of the topic when it opens the
        subscription. Therefore the broker is asked for the start entry even if it is not inclusive. Otherwise
        entries that are written in the meantime could be skipped.
        """
        self._dropped = None if inclusive else start
        await self._subscribe(
            CommandSubscribe(
                subscription=self.subscription,
                sub_type=CommandSubscribe.Exclusive,
                durable=False,
                read_compacted=read_compacted,
                start_message_id=_start_message_id(start),
                force_topic_creation=False,
            )
        )

    def hand_over(self, listener: EntryListener) -> None:
        """From now on, this listener receives the entries and the end of the reader."""
        self._listener = listener

    def flow(self, permits: int) -> None:
        """Let the broker send `permits` more messages. The broker sends whole entries, so a few more may arrive."""
        if not self.closed:
            frame = encode_flow(self._id, permits)
            self.connection.write(frame)

    def handle_message(self, command: CommandMessage, frame: memoryview, offset: int) -> None:
        broker_metadata, metadata, payload = parse_message(frame, offset)
        message_id = command.message_id
        if 2 * len(payload) < len(frame):  # the payload would keep the rest of the frame in memory
            payload = memoryview(bytearray(payload))
        position: Position = tuple.__new__(Position, (message_id.ledger_id, message_id.entry_id))  # half the time
        entry = Entry(position, broker_metadata, metadata, payload)
        if entry.permits != metadata.num_messages_in_batch:
            self._make_up(metadata.num_messages_in_batch - entry.permits)
        if entry.position == self._dropped:
            self.flow(entry.permits)
            return
        self._listener.on_entry(entry)

    def _make_up(self, odd: int) -> None:
        """Correct the broker's permits after an impossible message count, which the broker subtracted from them."""
        self._surplus = (self._surplus - odd) % 2**32
        if self._surplus >= 2**30:  # the broker's count is negative, or will be soon
            while self._surplus:
                permits = min(2**32 - self._surplus, _MAX_INT32)
                self.flow(permits)
                self._surplus = (self._surplus + permits) % 2**32

    def _on_closed(self, error: PulsarError) -> None:
        self._listener.on_reader_closed(error)


def _start_message_id(start: Start) -> MessageIdData:
    """The broker starts at this entry, or at the next one that exists."""
    if start == "earliest":
        position = _EARLIEST
    elif start == "latest":
        position = _LATEST
    else:
        position = start
    return MessageIdData(ledger_id=position.ledger_id, entry_id=position.entry_id)
