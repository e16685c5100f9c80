"""One producer on one topic of one broker."""

from collections.abc import Sequence
from itertools import count
from typing import Protocol

from gateway.pulsar.connection import Condition, Connection, ConnectionState
from gateway.pulsar.errors import (
    REFUSED_SENDS,
    ClientClosedError,
    ConnectionLostError,
    MessageTooLargeError,
    PulsarError,
    TopicClosedError,
    error_from_server,
)
from gateway.pulsar.position import Position
from protocol.pulsar.frames import Buffer, SendEncoder, encode_metadata_properties
from protocol.pulsar.pulsar_commands_pb2 import (
    BaseCommand,
    CommandCloseProducer,
    CommandProducer,
    CommandProducerSuccess,
    CommandSendError,
    KeyValue,
    ProducerAccessMode,
)

STALLED_S = 20.0
"""Sends that the broker does not answer within this time are abandoned. Kafka's clients wait for 30 s or more."""
OPENING_BITS = 32
"""A producer never sends so many entries that it reaches the sequence ids of the next producer with its name."""
_openings = count(1)
METADATA_BYTES = 1024
"""An upper bound for the metadata of an entry, which counts towards `Producer.max_message_bytes`."""


class SendListener(Protocol):
    """Receives the outcome of a producer's sends. Called from the event loop; must not block."""

    def on_receipt(self, sequence_id: int, position: Position) -> None:
        """The entry is in the log at `position`. Receipts come in the order of sending."""

    def on_send_error(self, sequence_id: int, error: PulsarError) -> None:
        """The broker refused the entry before writing it: the entry is certainly not in the log."""

    def on_producer_closed(self, error: PulsarError) -> None:
        """The producer is dead. An unanswered entry may or may not be in the log, now or a moment later."""


class Producer:
    """Sends entries to one topic until either side closes the producer; its owner then opens another one."""

    def __init__(self, topic: str, connection: Connection, listener: SendListener, *, owns_connection: bool) -> None:
        self.topic = topic
        self.connection = connection
        self.name = ""
        self.topic_epoch: int | None = None
        """Set for exclusive producers. It increases each time another producer takes the topic."""
        self.closed = False
        self._listener = listener
        self.handle_receipt = listener.on_receipt
        self.before_flush = connection.before_flush
        self._owns_connection = owns_connection
        self._id = connection.next_id()
        self._last_sequence_id = -1
        self._encoder: SendEncoder | None = None

    @property
    def max_message_bytes(self) -> int:
        """The largest entry that the broker accepts, including its metadata."""
        return self.connection.max_message_bytes

    async def open(
        self, *, fencing: bool, properties: Sequence[tuple[str, str]], predecessor: "Producer | None", name: str = ""
    ) -> None:
        """Register with the broker. Raises PulsarError; the broker then holds no producer."""
        connection = self.connection
        request_id = connection.next_id()
        command = self._open_command(request_id, fencing, properties, predecessor)
        # Successive producers have the same name: an entry's sequence id must show which of them wrote it.
        if predecessor is not None:
            self._last_sequence_id = predecessor._last_sequence_id
        elif name:
            command.producer_name = name
            self._last_sequence_id = (next(_openings) << OPENING_BITS) - 1
        connection.producers[self._id] = self
        try:
            answer = await connection.request(BaseCommand(type=BaseCommand.PRODUCER, producer=command), request_id)
            if self.closed:  # closed directly after the answer, before this task continued
                raise TopicClosedError("the broker closed the producer at once")
        except BaseException:
            self._abandon()
            raise
        self._opened(answer.producer_success)

    def _open_command(
        self, request_id: int, fencing: bool, properties: Sequence[tuple[str, str]], predecessor: "Producer | None"
    ) -> CommandProducer:
        command = CommandProducer(
            topic=self.topic,
            producer_id=self._id,
            request_id=request_id,
            user_provided_producer_name=False,
            metadata=[KeyValue(key=key.encode(), value=value.encode()) for key, value in properties],
        )
        if fencing:
            command.producer_access_mode = ProducerAccessMode.ExclusiveWithFencing
        if predecessor is not None:
            # Names are unique in a topic: the broker returns ProducerBusy as long as it holds the predecessor.
            command.producer_name = predecessor.name
            if predecessor.topic_epoch is not None:
                command.topic_epoch = predecessor.topic_epoch
                command.producer_access_mode = ProducerAccessMode.Exclusive
        return command

    def _opened(self, success: CommandProducerSuccess) -> None:
        self.name = success.producer_name
        if success.HasField("topic_epoch"):
            self.topic_epoch = success.topic_epoch
        self._last_sequence_id = max(success.last_sequence_id, self._last_sequence_id)
        self._encoder = SendEncoder(self._id, self.name)

    def send(
        self,
        chunks: Sequence[Buffer],
        *,
        num_messages: int,
        publish_time_ms: int,
        properties: Sequence[tuple[str, str]] | bytes = (),
        only_if: Condition | None = None,
    ) -> int:
        """Write one entry and return its sequence id. Its payload is the concatenation of the chunks.

        Never waits; the chunks are not copied and must not change before the receipt. `properties` may be passed
        encoded (`encode_metadata_properties`), which is faster. The entry is sent only if `only_if` holds
        (`Connection.write`). Raises ClientClosedError or ConnectionLostError if the producer is dead,
        or MessageTooLargeError; then nothing is written.
        """
        encoder = self._encoder
        if self.closed or encoder is None:
            raise self._closed_error()
        fields = properties if isinstance(properties, bytes) else encode_metadata_properties(properties)
        sequence_id = self._last_sequence_id + 1
        buffers, size = encoder.encode(sequence_id, num_messages, publish_time_ms, fields, chunks)
        if size > self.connection.max_message_bytes:
            raise MessageTooLargeError(
                f"entry of {size} bytes, at most {self.connection.max_message_bytes} are allowed"
            )
        self._last_sequence_id = sequence_id
        self.connection.write(*buffers, only_if=only_if)
        return sequence_id

    async def close(self) -> None:
        """Wait for entries in flight and let the broker remove the producer.

        The listener still gets receipts until this returns; `on_producer_closed` is called if the producer or its
        connection is lost while waiting. Raises PulsarError if the broker does not confirm.
        """
        if self.closed:
            return
        self.closed = True
        request_id = self.connection.next_id()
        try:
            await self.connection.request(self._close_command(request_id), request_id)
        finally:
            self.connection.producers.pop(self._id, None)
            self._close_own_connection()

    def handle_send_error(self, command: CommandSendError) -> None:
        error = error_from_server(command.error, command.message)
        if command.error in REFUSED_SENDS:
            self._listener.on_send_error(command.sequence_id, error)
            return
        # The entry may be written nevertheless: only a new producer and a check of the log can show that.
        self._abandon()
        self._listener.on_producer_closed(error)

    def handle_closed(self, error: PulsarError) -> None:
        self.closed = True
        self._close_own_connection()
        if self._encoder is not None:  # otherwise `open` raises the error
            self._listener.on_producer_closed(error)

    def fail(self, error: PulsarError) -> None:
        """Close the producer from this side, because of data that the broker sent."""
        self._abandon()
        if self._encoder is not None:
            self._listener.on_producer_closed(error)

    def _close_command(self, request_id: int) -> BaseCommand:
        close = CommandCloseProducer(producer_id=self._id, request_id=request_id)
        return BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=close)

    def _abandon(self) -> None:
        """Tell the broker to remove the producer, without waiting for its answer."""
        self.closed = True
        connection = self.connection
        if connection.producers.pop(self._id, None) is not None and connection.state is not ConnectionState.CLOSED:
            connection.send_command(self._close_command(connection.next_id()))
        self._close_own_connection()

    def _close_own_connection(self) -> None:
        if self._owns_connection:
            self.connection.close(ClientClosedError(f"the producer on {self.topic} is closed"))

    def _closed_error(self) -> PulsarError:
        if self.connection.state is ConnectionState.CLOSED:
            return ConnectionLostError(f"connection of the producer on {self.topic} is closed")
        return ClientClosedError(f"producer on {self.topic} is closed")
