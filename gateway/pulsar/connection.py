"""One connection to a Pulsar broker: login, keep-alive, requests and their answers, dispatch of received commands."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol, cast

import structlog

from gateway.background import report
from gateway.pulsar.broker_address import BrokerAddress
from gateway.pulsar.errors import (
    ClientClosedError,
    ClosedByBrokerError,
    ConnectionLostError,
    ListenerError,
    ProtocolError,
    PulsarError,
    TopicClosedError,
    error_from_server,
)
from gateway.pulsar.handlers import ConsumerHandler, ProducerHandler
from gateway.pulsar.keepalive import Keepalive
from gateway.pulsar.login import auth_response, connect_command
from gateway.pulsar.pending_requests import PendingRequests
from gateway.pulsar.position import Position
from gateway.pulsar.send_window import SendWindow
from gateway.pulsar.settings import PulsarSettings
from protocol.framing import FrameReceiver
from protocol.pulsar.frames import FRAME_PADDING_BYTES, Buffer, FrameError, encode_command, parse_command
from protocol.pulsar.pulsar_commands_pb2 import (
    BaseCommand,
    CommandPong,
)

DEFAULT_MAX_MESSAGE_BYTES = 5 * 1024 * 1024
"""The limit of a broker that does not send one."""
TURN_BYTES = 128 * 1024
"""Bytes read before other tasks get their turn in the event loop: a client's small request does not wait until all data
of a broker is processed."""

# This buffer is filled and emptied within one callback of the loop, so all connections can share it.
_shared_buffer = memoryview(bytearray(128 * 1024))

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

log = structlog.get_logger()

Handler = Callable[[BaseCommand, memoryview, int], None]
Condition = Callable[[], bool]
"""Whether data may still be sent. Must not block."""


class ConnectionState(Enum):
    """The state of a connection. Metrics show the values."""

    HANDSHAKE = "handshake"
    READY = "ready"
    CLOSED = "closed"


_NEXT_STATES: Final[dict[ConnectionState, frozenset[ConnectionState]]] = {
    ConnectionState.HANDSHAKE: frozenset({ConnectionState.READY, ConnectionState.CLOSED}),
    ConnectionState.READY: frozenset({ConnectionState.CLOSED}),
    ConnectionState.CLOSED: frozenset(),
}


class ConnectionOwner(Protocol):
    """The creator of a connection; gets its state changes."""

    last_receipt_s: float
    """When a broker last sent a receipt, by the loop's clock. The connection sets it."""

    def on_connection_state(self, connection: "Connection", error: PulsarError | None) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """A connection to one broker, opened by `Connections`. It is dead once `state` is CLOSED."""

    def __init__(
        self,
        address: BrokerAddress,
        settings: PulsarSettings,
        owner: ConnectionOwner,
        send_window: SendWindow | None = None,
    ) -> None:
        self.address = address
        self.state = ConnectionState.HANDSHAKE
        self.max_message_bytes = DEFAULT_MAX_MESSAGE_BYTES
        self.bytes_received = 0
        self.writable = True
        """False while more than `write_buffer_high_bytes` wait to be sent."""
        self.writable_event = asyncio.Event()
        self.writable_event.set()
        self.producers: dict[int, ProducerHandler] = {}
        self.consumers: dict[int, ConsumerHandler] = {}
        self.send_window = send_window
        """Bounds what a namespace has unacknowledged; None for connections that no namespace owns."""
        self._settings = settings
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._turn_bytes = 0
        most_bytes = DEFAULT_MAX_MESSAGE_BYTES + FRAME_PADDING_BYTES
        self._receiver = FrameReceiver(_shared_buffer, most_bytes, first_allocation_bytes=most_bytes)
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._requests = PendingRequests(address.url, settings.request_timeout_ms)
        self._last_id = 0
        self._outgoing: list[Buffer] = []
        self._conditions: set[Condition] = set()
        self._before_flush: list[Callable[[], None]] = []
        self._is_flush_due = False
        self._keepalive = Keepalive(self, settings.keepalive_interval_ms)
        self._handlers = self._handler_table()

    def _handler_table(self) -> dict[int, Handler]:
        types, answered = BaseCommand, self._requests.answered
        return {
            types.MESSAGE: self._on_message,
            types.SEND_RECEIPT: self._on_send_receipt,
            types.SEND_ERROR: self._on_send_error,
            types.PING: self._on_ping,
            types.CLOSE_PRODUCER: self._on_close_producer,
            types.CLOSE_CONSUMER: self._on_close_consumer,
            types.CONNECTED: self._on_connected,
            types.AUTH_CHALLENGE: self._on_auth_challenge,
            types.ERROR: self._on_error,
            types.SUCCESS: lambda c, *_: answered(c.success.request_id, c),
            types.PRODUCER_SUCCESS: lambda c, *_: answered(c.producer_success.request_id, c),
            types.LOOKUP_RESPONSE: lambda c, *_: answered(c.lookup_topic_response.request_id, c),
            types.PARTITIONED_METADATA_RESPONSE: lambda c, *_: answered(c.partition_metadata_response.request_id, c),
            types.GET_LAST_MESSAGE_ID_RESPONSE: lambda c, *_: answered(c.get_last_message_id_response.request_id, c),
            types.ACK_RESPONSE: lambda c, *_: answered(c.ack_response.request_id, c),
        }

    # Called by the owner.

    async def wait_ready(self) -> None:
        """Return when logged in. Raises the PulsarError that ended the connection before that."""
        await self._ready

    def next_id(self) -> int:
        """A number that is not yet used on this connection, for a request, producer or consumer."""
        self._last_id += 1
        return self._last_id

    def write(self, *buffers: Buffer, only_if: Condition | None = None) -> None:
        """Send these buffers in order. All data written in one turn of the loop is sent together.

        `only_if` is checked just before sending; if it is false then, the connection is closed and nothing is sent.
        """
        if not self._is_flush_due:
            self._flush_soon()
        self._outgoing += buffers
        if only_if is not None:
            self._conditions.add(only_if)

    def before_flush(self, step: Callable[[], None]) -> None:
        """Call this in the next turn of the loop, before the data of the turn is sent. What it writes is sent with it,
        instead of a turn later."""
        self._before_flush.append(step)
        if not self._is_flush_due:
            self._flush_soon()

    def _flush_soon(self) -> None:
        self._is_flush_due = True
        self._loop.call_soon(self._flush)

    def send_command(self, command: BaseCommand) -> None:
        self.write(encode_command(command))

    async def request(self, command: BaseCommand, request_id: int) -> BaseCommand:
        """Send a command that carries `request_id` and wait for its answer.

        Raises the PulsarError of the broker's answer, ConnectionLostError or RequestTimeoutError.
        """
        if self.state is ConnectionState.CLOSED:
            raise ConnectionLostError(f"connection to {self.address.url} is closed")
        self.send_command(command)
        return await self._requests.answer(request_id, command.type)

    def close(self, error: PulsarError) -> None:
        """Close the connection at once. Every request, producer and consumer on it gets `error`.

        Producers' data that the broker has not received yet is discarded: it could arrive after another gateway has
        become leader.
        """
        if self.state is ConnectionState.CLOSED:
            return
        self._become(ConnectionState.CLOSED, error)
        self._keepalive.stop()
        if self._transport is not None:
            if not self._transport.is_closing() and (self.producers or not isinstance(error, ClientClosedError)):
                _discard_unsent(self._transport)
            self._transport.abort()
        self._outgoing.clear()
        self._conditions.clear()
        self._resume(True)
        self._fail_waiters(error)

    def _fail_waiters(self, error: PulsarError) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # possibly nobody waits for it
        self._requests.fail_all(error)
        handlers: list[ProducerHandler | ConsumerHandler] = [*self.producers.values(), *self.consumers.values()]
        self.producers.clear()
        self.consumers.clear()
        for handler in handlers:
            self._end(handler.handle_closed, error)

    def _tell(self, handler: ProducerHandler | ConsumerHandler, listen: Callable[..., None], *facts: object) -> None:
        """Call one producer's or consumer's handler. Its failure must not end the connection, which others share."""
        try:
            listen(*facts)
        except Exception as error:
            self._failed(handler, error)

    def _failed(self, handler: ProducerHandler | ConsumerHandler, error: Exception) -> None:
        """Called while the exception is handled."""
        log.exception("exception in a producer or consumer", broker=self.address.url)
        self._end(handler.fail, ListenerError(f"{self.address.url}: {error!r}"))

    def _end(self, listen: Callable[[PulsarError], None], error: PulsarError) -> None:
        try:
            listen(error)
        except Exception:
            log.exception("exception at the end of a producer or consumer", broker=self.address.url)

    def _become(self, state: ConnectionState, error: PulsarError | None) -> None:
        if state not in _NEXT_STATES[self.state]:
            raise AssertionError(f"connection cannot go from {self.state} to {state}")
        self.state = state
        self._owner.on_connection_state(self, error)

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._settings.write_buffer_high_bytes)
        try:
            self.send_command(connect_command(self.address, self._settings))
        except OSError as error:
            self.close(ConnectionLostError(f"cannot read the token: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        lost = ClosedByBrokerError if exc is None or isinstance(exc, ConnectionResetError) else ConnectionLostError
        self.close(lost(f"connection to {self.address.url} lost: {exc or 'closed by peer'}"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.bytes_received += nbytes
        self._turn_bytes += nbytes
        if self._turn_bytes >= TURN_BYTES:
            self._end_turn()
        try:
            for frame in self._receiver.buffer_updated(nbytes):
                self._take(memoryview(frame))
        except FrameError as error:
            self.close(ProtocolError(f"{self.address.url}: {error}"))

    def _end_turn(self) -> None:
        self._turn_bytes = 0
        if self._transport is not None:
            self._transport.pause_reading()
            self._loop.call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        self._resume(False)

    def resume_writing(self) -> None:
        self._resume(True)

    def _resume(self, writable: bool) -> None:
        self.writable = writable
        if writable:
            self.writable_event.set()
        else:
            self.writable_event.clear()

    def _flush(self) -> None:
        steps, self._before_flush = self._before_flush, []
        for step in steps:
            try:
                step()
            except Exception as error:
                report("step before sending", error)
        self._is_flush_due = False
        if self._before_flush:
            self._flush_soon()
        self._send_outgoing()

    def _send_outgoing(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        if not outgoing or self._transport is None or self.state is ConnectionState.CLOSED:
            return
        if self._conditions:
            conditions, self._conditions = self._conditions, set()
            if not all(holds() for holds in conditions):  # this process may have been suspended since
                self.close(ConnectionLostError("the sender's condition no longer holds"))
                return
        self._transport.writelines(outgoing)

    # Login.

    def _on_connected(self, command: BaseCommand, *_: object) -> None:
        if self.state is not ConnectionState.HANDSHAKE:
            raise FrameError("CONNECTED after the handshake")
        if command.connected.max_message_size > 0:
            self.max_message_bytes = command.connected.max_message_size
            self._receiver.max_frame_bytes = self.max_message_bytes + FRAME_PADDING_BYTES
        self._become(ConnectionState.READY, None)
        self._keepalive.start()
        if not self._ready.done():
            self._ready.set_result(None)

    def _on_auth_challenge(self, *_: object) -> None:
        try:
            self.send_command(auth_response(self._settings))
        except OSError as error:
            self.close(ConnectionLostError(f"cannot read the token: {error}"))

    def _on_ping(self, *_: object) -> None:
        self.send_command(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))

    # Dispatch.

    def _take(self, frame: memoryview) -> None:
        if self.state is ConnectionState.CLOSED:
            return
        if not frame:
            raise FrameError(f"a frame that is empty, or has more than {self._receiver.max_frame_bytes} bytes")
        command, offset = parse_command(frame)
        handler = self._handlers.get(command.type)
        if handler is not None:
            handler(command, frame, offset)

    def _on_message(self, command: BaseCommand, frame: memoryview, offset: int) -> None:
        message = command.message
        consumer = self.consumers.get(message.consumer_id)
        if consumer is None:  # it was closed while the message was in flight
            return
        try:  # as `_tell`, in place
            consumer.handle_message(message, frame, offset)
        except Exception as error:
            self._failed(consumer, error)

    def _on_send_receipt(self, command: BaseCommand, *_: object) -> None:
        receipt = command.send_receipt
        self._owner.last_receipt_s = self._loop.time()
        producer = self.producers.get(receipt.producer_id)
        if producer is not None:
            message_id = receipt.message_id
            try:  # as `_tell`, in place
                producer.handle_receipt(receipt.sequence_id, Position(message_id.ledger_id, message_id.entry_id))
            except Exception as error:
                self._failed(producer, error)

    def _on_send_error(self, command: BaseCommand, *_: object) -> None:
        producer = self.producers.get(command.send_error.producer_id)
        if producer is not None:
            self._tell(producer, producer.handle_send_error, command.send_error)

    def _on_close_producer(self, command: BaseCommand, *_: object) -> None:
        producer = self.producers.pop(command.close_producer.producer_id, None)
        if producer is not None:
            self._end(producer.handle_closed, TopicClosedError("the broker closed the producer"))

    def _on_close_consumer(self, command: BaseCommand, *_: object) -> None:
        consumer = self.consumers.pop(command.close_consumer.consumer_id, None)
        if consumer is not None:
            self._end(consumer.handle_closed, TopicClosedError("the broker closed the consumer"))

    def _on_error(self, command: BaseCommand, *_: object) -> None:
        error = error_from_server(command.error.error, command.error.message)
        if self.state is ConnectionState.HANDSHAKE:
            self.close(error)
            return
        self._requests.failed(command.error.request_id, error)


def _discard_unsent(transport: asyncio.Transport) -> None:
    """Reset the connection when it is closed. Otherwise the kernel tries for minutes to deliver the unsent data."""
    with contextlib.suppress(OSError):  # the socket is closed already
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
