"""The requests of one connection: run in their order, answered in their order.

A request is run when those before it are answered, as Kafka does: what its answer tells is then not older than what the
client was told before. Requests of APIs that only add may run behind others of their kind (`Api.pipelined`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

import structlog

from gateway.config import Limits
from gateway.dispatch import Dispatcher, RequestHandler, ServedCluster, UnsupportedRequest
from gateway.login.session import LoginAnswer, LoginSession
from gateway.network.admission import Admission
from gateway.network.output import Gone, Output
from gateway.network.request_budget import RequestBudget
from gateway.network.turns import SLICE_S, Turns
from gateway.observability.metrics import Metrics
from gateway.requests.call import Call, ClosesConnection
from gateway.requests.cluster import ClusterRefused
from gateway.requests.context import Listener, Principal, RequestContext
from gateway.requests.reply import Reply, Response
from protocol.framing import LENGTH_BYTES
from protocol.kafka.buffers import Buffer
from protocol.kafka.codec import MalformedRequest
from protocol.kafka.value_counts import count_values

T = TypeVar("T")
log = structlog.get_logger()


class Host(Protocol):
    """What all connections share."""

    dispatcher: Dispatcher
    limits: Limits
    metrics: Metrics
    requests: RequestBudget
    """Of all clusters."""
    turns: Turns
    threads: ThreadPoolExecutor
    """For large requests and answers. Names of hosts are looked up in others, and wait for none of these."""

    def requests_of(self, served: ServedCluster) -> RequestBudget:
        """The share of one of several clusters."""


class _Slot:
    """The place of one answer in the order of answers."""

    __slots__ = ("buffers", "call", "request_bytes", "room_bytes")

    def __init__(self, call: Call, request_bytes: int, room_bytes: int) -> None:
        self.call = call
        self.request_bytes = request_bytes
        self.room_bytes = room_bytes
        """Taken of the budget of decoded requests."""
        self.buffers: list[Buffer] | None = None


class Pipeline:
    def __init__(
        self,
        host: Host,
        context: RequestContext,
        output: Output,
        *,
        answers_in_order: bool,
        login: LoginSession | None = None,
    ) -> None:
        """`login` answers until the client has logged in, and when it does so again."""
        self._host = host
        self._context = context
        self._login = login
        self._output: Output = output
        self._answers_in_order = answers_in_order
        self.admission = Admission(host.dispatcher, context)
        self.requests = host.requests
        """That its requests count in: the share of its cluster, once it is admitted to one of several."""
        self._handler: RequestHandler = host.dispatcher.handler(context, self.admission.served)
        self._loop = asyncio.get_running_loop()
        self._backlog: deque[bytearray] = deque()
        self._slots: deque[_Slot] = deque()
        self._serial: asyncio.Task[Any] | None = None
        """What the next request waits for: decoding, or a handler's preparation."""
        self._awaited: set[asyncio.Future[Response]] = set()
        self._encoding: set[asyncio.Future[list[Buffer]]] = set()
        self._request_bytes = self._room_bytes = 0
        """Taken of the budgets of all connections."""
        self._flush_scheduled = False
        self._muted: asyncio.TimerHandle | None = None
        self._waits_for_turn = False
        self._closed = False
        self.ending: str | None = None
        """Why nothing more is run; the connection closes when what was run is answered."""
        context.client.mute = self.mute

    # Requests

    @property
    def has_backlog(self) -> bool:
        """Requests that were read are not run yet."""
        return bool(self._backlog)

    @property
    def idle(self) -> bool:
        """Nothing of this client is being worked on."""
        return not self._slots and not self._backlog and self._serial is None

    @property
    def request_bytes(self) -> int:
        """Of this client, in memory."""
        return self._request_bytes

    def received(self, size_bytes: int) -> None:
        """Of requests, or a part of one; they are held until they are answered."""
        self._request_bytes += size_bytes
        self.requests.received(size_bytes)

    def released(self, size_bytes: int) -> None:
        self._request_bytes -= size_bytes
        self.requests.released(size_bytes)

    def take(self, frames: Iterable[bytearray]) -> None:
        """To be run with the next `run`."""
        self._backlog.extend(frames)

    def run(self) -> None:
        """Run the requests that have been read, until one has to be waited for, or others have their turn."""
        if self._backlog and not self._waits_for_turn:
            if self._host.turns.may_run(self._cluster):
                self._run_slice()
            else:
                self._wait_for_turn()
        self._output.progressed()

    def _run_slice(self) -> None:
        turns, backlog = self._host.turns, self._backlog
        began_s = turns.now_s()
        while backlog and self._can_run(backlog[0]):
            self._run(backlog.popleft())
            if backlog and turns.now_s() - began_s >= SLICE_S:
                self._wait_for_turn()
                break
        turns.ran(self._cluster, turns.now_s() - began_s)

    @property
    def _cluster(self) -> int:
        return id(self.admission.served.cluster)

    def _wait_for_turn(self) -> None:
        self._waits_for_turn = True
        self._host.turns.wait(self._cluster, self._take_turn)

    def _take_turn(self) -> None:
        self._waits_for_turn = False
        self._run_slice()
        self._output.progressed()

    def _can_run(self, frame: bytearray) -> bool:
        return (
            self._serial is None
            and not self._encoding
            and self.ending is None
            and self._muted is None
            and self._output.accepts_answers
            and len(self._slots) < self._host.limits.max_in_flight_requests
            and (not self._awaited or not self._answers_in_order or self._may_overtake(frame))
        )

    def _may_overtake(self, frame: bytearray) -> bool:
        if self._login is not None and self._login.takes(frame):  # it may end the connection
            return False
        return self._host.dispatcher.is_pipelined(frame, self._slots[-1].call)

    def _run(self, frame: bytearray) -> None:
        if self._login is not None and self._login.takes(frame):
            self._serially(self._login.answer(frame), partial(self._take_login, len(frame) + LENGTH_BYTES))
            return
        dispatcher = self._host.dispatcher
        if self.admission.is_awaited:
            self._backlog.appendleft(frame)
            self._serially(self.admission.choose(self._context), self._enter)
            return
        if dispatcher.is_large(frame):
            self._serially(self._decode_large(frame), self._start)
            return
        try:
            call = dispatcher.begin(frame, self._context)
        except MalformedRequest as error:
            self._end_malformed(error)
            return
        self._start(_Slot(call, len(frame) + LENGTH_BYTES, 0))

    def _take_login(self, request_bytes: int, answer: LoginAnswer) -> None:
        """What was asked before is answered."""
        self.released(request_bytes)
        if answer.principal is not None:
            self.become(answer.principal)
            if answer.served is not None and self.admission.is_awaited:
                self._enter(answer.served)
            self._output.logged_in()
        self._output.write(answer.buffers)
        if answer.ends is not None:
            self._output.end(answer.ends)

    def become(self, principal: Principal, listener: Listener | None = None) -> None:
        """What is asked from now on is asked by this one, by this listener if one is given."""
        context, served = self._context, self.admission.served
        listener = listener or context.listener
        self._context = self._host.dispatcher.context(context.client, listener, principal, served)
        if self._login is not None:
            self._login.comes_by(self._context)

    def _enter(self, served: ServedCluster) -> None:
        if not self.admission.admit(served):
            self._output.end("too many connections of the cluster")
            return
        self._count_in(self._host.requests_of(served))
        dispatcher, context = self._host.dispatcher, self._context
        self._context = dispatcher.context(context.client, context.listener, context.principal, served)
        self._handler.close()
        self._handler = dispatcher.handler(self._context, served)

    def _count_in(self, requests: RequestBudget) -> None:
        held_bytes, before, self.requests = self._request_bytes, self.requests, requests
        before.released(held_bytes)
        requests.received(held_bytes)

    async def _decode_large(self, frame: bytearray) -> _Slot:
        """In a thread, where the event loop goes on, and when there is memory for what becomes of it."""
        requests = self._host.requests
        room_bytes, kept_bytes = await requests.room_to_decode(len(frame)), 0
        try:
            call, values = await self._loop.run_in_executor(self._host.threads, self._decode, frame)
            kept_bytes = min(room_bytes, requests.decoded_bytes(len(frame), values))
        finally:
            requests.decoded(room_bytes, kept_bytes)
        self._room_bytes += kept_bytes
        return _Slot(call, len(frame) + LENGTH_BYTES, kept_bytes)

    def _decode(self, frame: bytearray) -> tuple[Call, int]:
        """The call, and how many values are in its lists."""
        call = self._host.dispatcher.begin(frame, self._context)
        return call, count_values(call.api.request, call.request)

    def _start(self, slot: _Slot) -> None:
        self._slots.append(slot)
        self._host.metrics.in_flight.inc()
        try:
            reply = self._handler.handle(slot.call)
        except Exception as error:
            self._fail(slot.call, error)
            return
        self._take_reply(slot, reply)

    def _take_reply(self, slot: _Slot, reply: Reply) -> None:
        if reply.preparation is not None:
            self._serially(reply.preparation, lambda prepared: self._take_reply(slot, prepared), slot)
        elif reply.future is not None:
            self._awaited.add(reply.future)
            reply.future.add_done_callback(lambda future: self._future_done(slot, future))
        else:
            self._answer(slot, reply.response)

    def _serially(self, work: Coroutine[Any, Any, T], then: Callable[[T], None], slot: _Slot | None = None) -> None:
        """Later requests of the connection wait for it. Without a slot, the request is not begun."""
        self._serial = asyncio.create_task(work)
        self._serial.add_done_callback(lambda task: self._serial_done(task, then, slot))

    def _serial_done(self, task: asyncio.Task[T], then: Callable[[T], None], slot: _Slot | None) -> None:
        self._serial = None
        if self._closed:
            _forget(task)
            return
        if task.cancelled():  # if not because this connection is lost, then because a log it waited for was closed
            self._output.end("interrupted")
            return
        error = task.exception()
        if error is not None:
            self._fail(slot.call if slot is not None else None, error)
            return
        then(task.result())
        self.run()

    def mute(self, throttle_time_ms: int) -> None:
        """No request is run for so long, or longer if it is muted already; the answers to those that run go out."""
        end_s = self._loop.time() + throttle_time_ms / 1000
        if self._muted is not None:
            end_s = max(end_s, self._muted.when())
            self._muted.cancel()
        self._muted = self._loop.call_at(end_s, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self.run()

    # Answers

    def _future_done(self, slot: _Slot, future: asyncio.Future[Response]) -> None:
        self._awaited.discard(future)
        if self._closed:
            _forget(future)
            return
        if future.cancelled():
            self._output.end("interrupted")
            return
        error = future.exception()
        if error is not None:
            self._fail(slot.call, error)
            return
        self._answer(slot, future.result(), later=True)

    def _answer(self, slot: _Slot, response: Response, *, later: bool = False) -> None:
        dispatcher = self._host.dispatcher
        try:
            response = dispatcher.complete(slot.call, response)
            if dispatcher.is_large_answer(slot.call, response):
                self._encode_large(slot, response)
                return
            slot.buffers = dispatcher.encode(slot.call, response)
        except Exception as error:
            self._fail(slot.call, error)
            return
        self._answered(later=later)

    def _encode_large(self, slot: _Slot, response: Response) -> None:
        encode = self._host.dispatcher.encode
        encoding = self._loop.run_in_executor(self._host.threads, encode, slot.call, response)
        self._encoding.add(encoding)
        encoding.add_done_callback(lambda task: self._encoded(slot, task))

    def _encoded(self, slot: _Slot, task: asyncio.Future[list[Buffer]]) -> None:
        self._encoding.discard(task)
        if self._closed or task.cancelled():
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
            self._loop.call_soon(self._flush_later)

    def _flush_later(self) -> None:
        self._flush_scheduled = False
        self._flush()
        if self._backlog:
            self.run()

    def _flush(self) -> None:
        """Write the answers that are next in order."""
        slots = self._slots
        if not self._answers_in_order:
            slots = self._slots = deque(sorted(slots, key=lambda slot: slot.buffers is None))
        if self._closed or not slots or slots[0].buffers is None:
            return
        ready: list[Buffer] = []
        request_bytes = 0
        while slots and slots[0].buffers is not None:
            slot = slots.popleft()
            ready.extend(slot.buffers or ())
            request_bytes += slot.request_bytes
            if slot.room_bytes:
                self._room_bytes -= slot.room_bytes
                self._host.requests.answered(slot.room_bytes)
            self._host.metrics.in_flight.dec()
        self.released(request_bytes)
        self._output.write(ready)
        if self.ending is not None and not slots:
            self._output.end(self.ending)

    # The end

    def _fail(self, call: Call | None, error: BaseException) -> None:
        """A defect of ours: say so in the log, and let the client come back with a new connection."""
        if isinstance(error, MalformedRequest) and call is None:
            self._end_malformed(error)
            return
        if isinstance(error, ClosesConnection | ClusterRefused):
            self._output.end(str(error))
            return
        self._host.metrics.unexpected_failures.labels("request").inc()
        log.error(
            "request failed",
            api=call and call.api.name,
            version=call and call.version,
            client_id=call and call.client_id,
            address=self._context.client.address,
            exc_info=error,
        )
        self._output.end("internal error")

    def _end_malformed(self, error: MalformedRequest) -> None:
        """Read nothing more, and close when the requests before the bad one are answered."""
        self.ending = "unsupported request" if isinstance(error, UnsupportedRequest) else "malformed request"
        log.info("connection ends", reason=self.ending, address=self._context.client.address, error=str(error))
        self._backlog.clear()
        if not self._slots:
            self._output.end(self.ending)

    def drop_backlog(self) -> None:
        """The connection is being closed."""
        self._backlog.clear()

    def close(self) -> None:
        """The client has gone: nobody waits for its answers."""
        self._closed = True
        self._handler.close()
        self.admission.leave()
        self._host.metrics.in_flight.dec(len(self._slots))
        self._slots.clear()
        self._backlog.clear()
        if self._muted is not None:
            self._muted.cancel()
        self.released(self._request_bytes)
        self._host.requests.answered(self._room_bytes)
        self._room_bytes = 0
        for task in (self._serial, *self._encoding):
            if task is not None:
                task.cancel()
        for future in tuple(self._awaited):
            future.cancel()
        self._output = Gone()
        self._context.client.mute = _not_muted


def _not_muted(throttle_time_ms: int) -> None:
    """There is nothing more to run."""


def _forget(work: asyncio.Future[Any]) -> None:
    """The client has gone: what comes of its request, or of what the handler still waits for, is nobody's."""
    if work.cancelled() or work.exception() is not None:
        return
    outcome = work.result()
    if isinstance(outcome, Reply):
        if outcome.preparation is not None:
            outcome.preparation.close()
        if outcome.future is not None and not outcome.future.cancel():
            _forget(outcome.future)
