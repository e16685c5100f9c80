"""One client's TCP connection: bytes to frames, answers in the order of the requests, back-pressure both ways.

A request is run when those before it are answered, as Kafka does: what its answer tells is then not older than what the
client was told before. Requests that only add may run behind others of their kind (`dispatch.PIPELINED`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from types import CoroutineType
from typing import Any, Protocol, TypeVar, cast

import structlog

from gateway.config import Limits, Networks
from gateway.dispatch import Dispatcher, UnsupportedRequest
from gateway.observability.metrics import Metrics
from gateway.request_budget import RequestBudget
from gateway.requests.call import Call, Client, ClosesConnection, Outcome, Response
from protocol.kafka.codec import Buffer, MalformedRequest, count_values
from protocol.kafka.frames import LENGTH_BYTES, FrameReceiver
from protocol.proxy.header import MAX_HEADER_BYTES, MalformedProxyHeaderError, parse_proxy_header

READ_BUFFER_BYTES = 256 * 1024
SHORT_READ_BYTES = 4_096
"""While memory is short: even a connection that is about to be paused may read once."""
WRITE_HIGH_BYTES = 256 * 1024

T = TypeVar("T")
log = structlog.get_logger()


class Owner(Protocol):
    """The server, as its connections know it."""

    dispatcher: Dispatcher
    limits: Limits
    metrics: Metrics
    requests: RequestBudget
    read_buffer: memoryview
    threads: ThreadPoolExecutor
    """For large requests and answers. Names of hosts are looked up in others, and wait for none of these."""

    def opened(self, connection: KafkaConnection) -> bool: ...

    def closed(self, connection: KafkaConnection) -> None: ...

    def unread_changed(self, connection: KafkaConnection, size_bytes: int) -> None: ...


def _is_within(host: str, networks: Networks) -> bool:
    address = ip_address(host.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network for network in networks)


def _forget(work: asyncio.Future[Any]) -> None:
    """The client has gone: what comes of its request, or of what the handler still waits for, is nobody's."""
    if not work.cancelled() and work.exception() is None:
        outcome = work.result()
        if isinstance(outcome, asyncio.Future) and not outcome.cancel():
            _forget(outcome)


def _nothing_to_end(reason: str) -> None:
    """The connection is gone already."""


class _Slot:
    """The place of one answer in the order of answers."""

    __slots__ = ("buffers", "call", "request_bytes", "room_bytes")

    def __init__(self, call: Call, request_bytes: int, room_bytes: int) -> None:
        self.call = call
        self.request_bytes = request_bytes
        self.room_bytes = room_bytes
        """Taken of the budget of decoded requests."""
        self.buffers: list[Buffer] | None = None


class KafkaConnection(asyncio.BufferedProtocol):
    """Reads frames, runs their calls, and writes the answers in order."""

    def __init__(
        self, owner: Owner, listener: str = "", *, proxies: Networks | None = None, answers_in_order: bool = True
    ) -> None:
        """`listener` is the name of the one that took the connection.

        With `proxies`, a PROXY header comes first, and only peers in these networks may send one.
        """
        self._owner = owner
        self.listener = listener
        self._proxies = proxies
        self._awaits_proxy_header = proxies is not None
        self._answers_in_order = answers_in_order
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._client = Client("")
        self._receiver = FrameReceiver(owner.read_buffer, owner.limits.max_request_bytes)
        self._proxy_header = b""
        self._backlog: deque[bytearray] = deque()
        self._slots: deque[_Slot] = deque()
        self._serial: asyncio.Task[Any] | None = None
        """What the next request waits for: decoding, a handler that is a coroutine, or encoding."""
        self._parked: set[asyncio.Future[Response]] = set()
        self._write_paused = False
        self._request_bytes = self._room_bytes = 0
        """Taken of the budgets of all connections."""
        self._encoding: set[asyncio.Future[list[Buffer]]] = set()
        self._flush_scheduled = False
        self._reading = True
        self._ending: str | None = None
        self._ended_by_client = False
        self.last_activity = self._loop.time()

    # Reading

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop has a class of its own
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._client = Client(f"{peer[0]}:{peer[1]}" if peer else "unknown", self.listener, close=self._close)
        self._owner.dispatcher.welcome(self._client)
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        if not self._owner.opened(self):
            self._close("too many connections")
        elif self._proxies is not None and not (peer and _is_within(peer[0], self._proxies)):
            self._close("not a trusted proxy")
        elif self._owner.requests.exhausted:
            self._loop.call_soon(self.regulate_reading)  # reading begins behind this call

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = self._receiver.get_buffer()
        return buffer[:SHORT_READ_BYTES] if self._owner.requests.exhausted else buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self.last_activity = self._loop.time()
        self._client.arrived_s = time.monotonic()
        self._owner.metrics.bytes_in.inc(nbytes)
        self._request_bytes += nbytes
        self._owner.requests.received(nbytes)
        if self._awaits_proxy_header:
            self._take_proxy_header(self._proxy_header + self._owner.read_buffer[:nbytes])
        else:
            # What is no frame ends the connection in its turn, behind good requests.
            self._backlog.extend(self._receiver.buffer_updated(nbytes))
        self._work()

    def _take_proxy_header(self, data: bytes) -> None:
        """Once it is whole; frames may follow at once."""
        try:
            header = parse_proxy_header(data[:MAX_HEADER_BYTES])
        except MalformedProxyHeaderError as error:
            self._close("no PROXY header", error=str(error))
            return
        if header is None:
            self._proxy_header = data
            return
        self._awaits_proxy_header = False
        self._proxy_header = b""
        self._request_bytes -= header.size_bytes
        self._owner.requests.released(header.size_bytes)
        if header.source is not None:
            self._client.address = f"{header.source.host}:{header.source.port}"
        self._backlog.extend(self._receiver.cut(memoryview(data)[header.size_bytes :]))

    # Calls

    def _work(self) -> None:
        """Run the requests that have been read, until one has to be waited for."""
        while self._backlog and self._can_run(self._backlog[0]):
            self._run(self._backlog.popleft())
        self.regulate_reading()

    def _can_run(self, frame: bytearray) -> bool:
        return (
            self._serial is None
            and not self._encoding
            and self._ending is None
            and not self._write_paused
            and self._transport is not None
            and len(self._slots) < self._owner.limits.max_in_flight_requests
            and (not self._parked or not self._answers_in_order or self._may_overtake(frame))
        )

    def _may_overtake(self, frame: bytearray) -> bool:
        return self._owner.dispatcher.is_pipelined(frame, self._slots[-1].call)

    def _run(self, frame: bytearray) -> None:
        dispatcher = self._owner.dispatcher
        if dispatcher.is_large(frame):
            self._serially(self._decode_large(frame), self._start)
            return
        try:
            call = dispatcher.begin(frame, self._client)
        except MalformedRequest as error:
            self._end_malformed(error)
            return
        self._start(_Slot(call, len(frame) + LENGTH_BYTES, 0))

    async def _decode_large(self, frame: bytearray) -> _Slot:
        """In a thread, where the event loop goes on, and when there is memory for what becomes of it."""
        requests = self._owner.requests
        room_bytes, kept_bytes = await requests.room_to_decode(len(frame)), 0
        try:
            call, values = await self._loop.run_in_executor(self._owner.threads, self._decode, frame)
            kept_bytes = min(room_bytes, requests.decoded_bytes(len(frame), values))
        finally:
            requests.decoded(room_bytes, kept_bytes)
        self._room_bytes += kept_bytes
        return _Slot(call, len(frame) + LENGTH_BYTES, kept_bytes)

    def _decode(self, frame: bytearray) -> tuple[Call, int]:
        """The call, and how many values are in its lists."""
        call = self._owner.dispatcher.begin(frame, self._client)
        return call, count_values(call.api.request, call.request)

    def _start(self, slot: _Slot) -> None:
        self._slots.append(slot)
        self._owner.metrics.in_flight.inc()
        try:
            outcome = self._owner.dispatcher.run(slot.call)
        except Exception as error:
            self._fail(slot.call, error)
            return
        if isinstance(outcome, CoroutineType):
            self._serially(outcome, lambda result: self._settle(slot, result), slot)
        else:
            self._settle(slot, outcome)

    def _serially(self, work: Coroutine[Any, Any, T], then: Callable[[T], None], slot: _Slot | None = None) -> None:
        """Later requests of the connection wait for it. Without a slot, the request is not begun."""
        self._serial = asyncio.create_task(work)
        self._serial.add_done_callback(lambda task: self._serial_done(task, then, slot))

    def _serial_done(self, task: asyncio.Task[T], then: Callable[[T], None], slot: _Slot | None) -> None:
        self._serial = None
        if self._transport is None:
            _forget(task)
            return
        if task.cancelled():  # if not because this connection is lost, then because a log it waited for was closed
            self._close("interrupted")
            return
        error = task.exception()
        if error is not None:
            self._fail(slot.call if slot is not None else None, error)
            return
        then(task.result())
        self._work()

    def _settle(self, slot: _Slot, outcome: Outcome) -> None:
        if isinstance(outcome, asyncio.Future):
            self._parked.add(outcome)
            outcome.add_done_callback(lambda future: self._parked_done(slot, future))
        else:
            self._answer(slot, outcome)

    def _parked_done(self, slot: _Slot, future: asyncio.Future[Response]) -> None:
        self._parked.discard(future)
        if self._transport is None:
            _forget(future)
            return
        if future.cancelled():
            self._close("interrupted")
            return
        error = future.exception()
        if error is not None:
            self._fail(slot.call, error)
            return
        self._answer(slot, future.result(), later=True)

    def _answer(self, slot: _Slot, response: Response, *, later: bool = False) -> None:
        dispatcher = self._owner.dispatcher
        if dispatcher.is_large_answer(slot.call, response):
            dispatcher.count(slot.call, response)
            encoding = self._loop.run_in_executor(self._owner.threads, dispatcher.encode, slot.call, response)
            self._encoding.add(encoding)
            encoding.add_done_callback(lambda task: self._encoded(slot, task))
            return
        try:
            slot.buffers = dispatcher.finish(slot.call, response)
        except Exception as error:
            self._fail(slot.call, error)
            return
        self._answered(later=later)

    def _encoded(self, slot: _Slot, task: asyncio.Future[list[Buffer]]) -> None:
        self._encoding.discard(task)
        if self._transport is None or task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._fail(slot.call, error)
            return
        slot.buffers = task.result()
        self._answered(later=True)

    def _answered(self, *, later: bool) -> None:
        if not later:
            self._flush()
        elif not self._flush_scheduled:
            # One entry's receipt answers many requests: their answers leave in one system call.
            self._flush_scheduled = True
            self._loop.call_soon(self._flush_parked)

    def _fail(self, call: Call | None, error: BaseException) -> None:
        """A defect of ours: say so in the log, and let the client come back with a new connection."""
        if isinstance(error, MalformedRequest) and call is None:
            self._end_malformed(error)
            return
        if isinstance(error, ClosesConnection):
            self._close(str(error))
            return
        self._owner.metrics.unexpected_failures.labels("request").inc()
        log.error(
            "request failed",
            api=call and call.api.name,
            version=call and call.version,
            client_id=call and call.client_id,
            address=self._client.address,
            exc_info=error,
        )
        self._close("internal error")

    # Writing

    def _flush(self) -> None:
        """Write the answers that are next in order."""
        slots, transport = self._slots, self._transport
        if not self._answers_in_order:
            slots = self._slots = deque(sorted(slots, key=lambda slot: slot.buffers is None))
        if transport is None or not slots or slots[0].buffers is None:
            return
        ready: list[Buffer] = []
        request_bytes = 0
        while slots and slots[0].buffers is not None:
            slot = slots.popleft()
            ready.extend(slot.buffers or ())
            request_bytes += slot.request_bytes
            if slot.room_bytes:
                self._room_bytes -= slot.room_bytes
                self._owner.requests.answered(slot.room_bytes)
            self._owner.metrics.in_flight.dec()
        self._request_bytes -= request_bytes
        self._owner.requests.released(request_bytes)
        self._owner.metrics.bytes_out.inc(sum(map(len, ready)))
        if len(ready) == 1:
            transport.write(ready[0])
        elif ready:
            transport.writelines(ready)
        if self._write_paused:  # the answers to what was already being handled
            self._count_unread()
        if self._ending is not None and not slots:
            self._close(self._ending)
        elif self._ended_by_client and self.idle:
            self._close("end of stream")

    def _flush_parked(self) -> None:
        self._flush_scheduled = False
        self._flush()
        if self._backlog:
            self._work()

    def pause_writing(self) -> None:
        # A client that does not read gets no further request answered, so that what it pins stays bounded.
        self._write_paused = True
        self._count_unread()
        self.regulate_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._owner.unread_changed(self, 0)
        self._work()

    def _count_unread(self) -> None:
        if self._transport is not None:
            self._owner.unread_changed(self, self._transport.get_write_buffer_size())

    def regulate_reading(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        want = not self._backlog and self._ending is None
        if want:
            want = self._owner.requests.may_read(self)
        else:
            self._owner.requests.forget(self)  # others may read while it works
        if want == self._reading:
            return
        self._reading = want
        if want:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # Closing

    @property
    def idle(self) -> bool:
        """Nothing of this client is being worked on."""
        return not self._slots and not self._backlog and self._serial is None

    @property
    def mid_frame(self) -> bool:
        """A part of a request has come."""
        return self._receiver.mid_frame

    def close(self, reason: str) -> None:
        if self._transport is not None and self._transport.is_closing():
            self._transport.abort()  # the client does not even take its last answers
        else:
            self._close(reason)

    def abort(self, reason: str) -> None:
        """Give up what the client has not taken."""
        self._close(reason)
        if self._transport is not None:
            self._transport.abort()

    def _end_malformed(self, error: MalformedRequest) -> None:
        reason = "unsupported request" if isinstance(error, UnsupportedRequest) else "malformed request"
        self._end(reason, error=str(error))

    def _end(self, reason: str, **facts: Any) -> None:
        """Read nothing more, and close when the requests before the bad one are answered."""
        log.info("connection ends", reason=reason, address=self._client.address, **facts)
        self._ending = reason
        self._backlog.clear()
        if not self._slots:
            self._close(reason)

    def _close(self, reason: str, **facts: Any) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._owner.metrics.connections_closed.labels(reason).inc()
        log.info("connection closed", reason=reason, address=self._client.address, **facts)
        self._backlog.clear()
        self._owner.requests.forget(self)
        self._transport.close()

    def eof_received(self) -> bool:
        """A client that has sent all may still want its answers. True keeps our side open until they are written."""
        if self.idle:
            return False
        self._ended_by_client = True
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._client.forwarder is not None:
            self._client.forwarder.close()
        self._owner.unread_changed(self, 0)
        self._owner.metrics.in_flight.dec(len(self._slots))
        self._slots.clear()
        self._backlog.clear()
        self._receiver.clear()
        requests = self._owner.requests
        requests.forget(self)
        requests.released(self._request_bytes)
        requests.answered(self._room_bytes)
        self._request_bytes = self._room_bytes = 0
        for task in (self._serial, *self._encoding):
            if task is not None:
                task.cancel()
        for future in tuple(self._parked):
            future.cancel()
        self._owner.closed(self)
        self._client.close = _nothing_to_end  # it would hold this connection until garbage is looked for
