"""The requests of one connection, run in their order and answered in their order.

A request runs when those before it are answered, as in Kafka: its answer is then never older than an earlier answer.
Requests of APIs that only add data may run while earlier requests of the same API are unanswered (`Api.pipelined`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar

import structlog

from gateway.config.gateway_config import FORWARDING_LISTENER
from gateway.dispatch import RequestHandler, ServedCluster, UnsupportedRequest
from gateway.fan_out import cluster_at_work
from gateway.login.session import LoginAnswer, LoginSession
from gateway.network.admission import Admission
from gateway.network.answers import Answers, Place
from gateway.network.backlog import Backlog
from gateway.network.held_memory import HeldMemory
from gateway.network.host import Host
from gateway.network.large_requests import decode_large
from gateway.network.output import Gone, Output
from gateway.network.turns import UNAUTHENTICATED
from gateway.observability.logs import LINES_PER_S, SparseLog
from gateway.requests.call import Api, Call, ClosesConnection
from gateway.requests.cluster import ClusterRefused
from gateway.requests.context import Listener, Principal, RequestContext
from gateway.requests.reply import Reply, Response, forget
from protocol.framing import LENGTH_BYTES
from protocol.kafka.buffers import Buffer
from protocol.kafka.codec import MalformedRequest
from protocol.proxy.header import ProxyHeader

T = TypeVar("T")
log = SparseLog(structlog.get_logger(), lines=LINES_PER_S)


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
        """`login` answers until the client has logged in, and when the client logs in again."""
        self._host = host
        self._context = context
        self._login = login
        self._output: Output = output
        self._answers_in_order = answers_in_order
        self._max_in_flight = host.limits.max_in_flight_requests
        self.admission = Admission(host.dispatcher, context)
        self._is_peer = context.listener.name == FORWARDING_LISTENER
        # Two gateways whose clients' requests wait for each other must still read what the other one forwards.
        self.memory = HeldMemory(host.peer_requests if self._is_peer else host.requests)
        self._is_pipelined = host.dispatcher.is_pipelined
        self._handler: RequestHandler = host.dispatcher.handler(context, self.admission.served)
        self._loop = asyncio.get_running_loop()
        self._backlog = Backlog()
        self._answers = Answers(host, self, in_order=answers_in_order)
        self._serial: asyncio.Task[Any] | None = None
        """The work that the next request waits for: a login, an admission, decoding, or a handler's preparation."""
        self._preparing: Api | None = None
        """The API of the handler's preparation."""
        self._awaited: dict[asyncio.Future[Response], None] = {}
        self._muted: asyncio.TimerHandle | None = None
        self._waits_for_turn = False
        self._closed = False
        self.ending: str | None = None
        """Why no more requests run; the connection closes when the running requests are answered."""
        context.client.mute = self.mute

    # Requests

    @property
    def has_backlog(self) -> bool:
        """There are requests that were read, and nothing has begun for them yet."""
        return self._backlog.has_unexpected

    @property
    def is_blocked(self) -> bool:
        """The next request waits for the client: it has to read, or is throttled, or waits for its last answer itself,
        such as that of a fetch. Kafka reads nothing meanwhile."""
        places = self._answers.places
        return (
            self._muted is not None
            or not self._output.accepts_answers
            or (bool(places) and self._answers_in_order and not places[-1].api.pipelined)
        )

    @property
    def nothing_waits(self) -> bool:
        """No request waits behind those that have begun."""
        return not self._backlog

    @property
    def idle(self) -> bool:
        """No request of this client waits or is being handled."""
        return not self._answers.places and not self._backlog and self._serial is None

    def take(self, frames: Iterable[bytearray]) -> None:
        """Queue frames for the next `run`."""
        self._backlog.extend(frames)

    def run(self) -> None:
        """Run the requests that were read, until one must be waited for or other connections get their turn."""
        if self._backlog and not self._waits_for_turn:
            cluster = self.cluster
            left_s = self._host.turns.left_s(cluster)
            if left_s > 0:
                self._run_slice(left_s, cluster)
            else:
                self._wait_for_turn()
            if self._preparing is not None:
                self._look_ahead(self._preparing)
        self._output.progressed()

    def _run_slice(self, slice_s: float, cluster: int) -> None:
        turns, backlog = self._host.turns, self._backlog
        began_s, at_work = turns.now_s(), cluster_at_work.set(cluster)
        while backlog and self._can_run(backlog[0]):
            self._run(backlog.take_next())
            if backlog and turns.now_s() - began_s >= slice_s:
                self._wait_for_turn()
                break
        cluster_at_work.reset(at_work)
        turns.ran(cluster, turns.now_s() - began_s)

    def in_turn(self, step: Callable[..., None], *arguments: object) -> None:
        """Run a step that follows some waiting. With several clusters, it may have to wait for the cluster's turn."""
        self._host.turns.run(self, step, *arguments)

    @property
    def cluster(self) -> int:
        """A number of its own for each cluster."""
        return UNAUTHENTICATED if self.admission.is_awaited else id(self.admission.served.cluster)

    def _wait_for_turn(self) -> None:
        self._waits_for_turn = True
        self._host.turns.wait(self.cluster, self._take_turn)

    def _take_turn(self, slice_s: float) -> None:
        self._waits_for_turn = False
        self._run_slice(slice_s, self.cluster)
        self._output.progressed()

    def _can_run(self, frame: bytearray) -> bool:
        places = self._answers.places
        return (
            self._serial is None
            and self.ending is None
            and self._muted is None
            and not self._answers.encoding
            and self._output.accepts_answers
            and (not places or not self._answers_in_order or self._is_pipelined(frame, places[-1].api))
            and (not places or self._login is None or not self._login.takes(frame))  # a login may end the connection
            and len(places) < self._max_in_flight
        )

    def _run(self, frame: bytearray) -> None:
        # Behind unanswered requests, `_can_run` has decided: a session that expires just now would end their answers.
        if self._login is not None and not self._answers.places and self._login.takes(frame):
            self._serially(self._login.answer(frame), partial(self._take_login, len(frame) + LENGTH_BYTES))
            return
        dispatcher = self._host.dispatcher
        if self.admission.is_awaited:
            self._backlog.insert(0, frame)
            self._serially(self.admission.choose(self._context), self._enter)
            return
        place = Place(self._answers, len(frame) + LENGTH_BYTES)
        try:
            is_handled = self._handler.handle_known(frame, self._context, place)
        except Exception as error:
            self.fail(None, error)
            return
        if is_handled:
            self._answers.add(place)
            if place.buffers is not None:
                self._answers.write()
            return
        if dispatcher.is_large(frame):
            self._serially(decode_large(self._host, self.memory, self._context, frame, place), self._start)
            return
        try:
            place.decoded(dispatcher.begin(frame, self._context))
        except MalformedRequest as error:
            self._end_malformed(error)
            return
        self._start(place)

    def _take_login(self, request_bytes: int, answer: LoginAnswer) -> None:
        """Finish a login request; all earlier requests are answered."""
        self.memory.released(request_bytes)
        if answer.principal is not None:
            self.become(answer.principal)
            if answer.served is not None and self.admission.is_awaited:
                self._enter(answer.served)
            self._output.logged_in()
        self.ending = answer.ends or self.ending  # first: with its last answer, a client that sends no more is closed
        self._output.write(answer.buffers)
        if answer.ends is not None:
            self._output.end(answer.ends)

    def become(self, principal: Principal, listener: Listener | None = None) -> None:
        """Later requests come from this principal, and from this listener if one is given."""
        context, served = self._context, self.admission.served
        listener = listener or context.listener
        self._context = self._host.dispatcher.context(context.client, listener, principal, served)
        if self._login is not None:
            self._login.set_context(self._context)

    def serve_peer(self, header: ProxyHeader) -> None:
        """Another gateway says whose requests it sends: its own, or those of a client."""
        if header.is_own:  # none of them waits for another gateway, so they always end
            self.memory.move_to(self._host.gateway_requests)
            self.memory.decode_in(self._host.gateway_requests)
        if header.cluster is not None:
            self.admission.ask_for(header.cluster)
        if header.principal is not None:
            self.become(Principal.named(header.principal))

    def _enter(self, served: ServedCluster) -> None:
        try:
            self.admission.admit(served)
        except ClusterRefused as refused:
            self._output.end(str(refused))
            return
        if not self._is_peer:
            self.memory.move_to(self._host.requests_of(served))
            limits = served.cluster.config.limits
            self._output.limit_requests(max(limits.requests_budget_bytes, limits.max_control_request_bytes))
        dispatcher, context = self._host.dispatcher, self._context
        self._context = dispatcher.context(context.client, context.listener, context.principal, served)
        self._handler.close()
        self._handler = dispatcher.handler(self._context, served)

    def _start(self, place: Place) -> None:
        assert place.call is not None
        self._answers.add(place)
        try:
            reply = self._handler.handle(place.call)
        except Exception as error:
            self.fail(place.call, error)
            return
        self.take_reply(place, reply)

    def take_reply(self, place: Place, reply: Reply) -> None:
        if reply.preparation is not None:
            assert place.call is not None
            self._serially(reply.preparation, lambda prepared: self.take_reply(place, prepared), place)
            self._preparing = place.call.api
            self._look_ahead(place.call.api)
        elif reply.future is not None:
            if not reply.needs_request:
                self.memory.answered(*place.give_up_memory())
            self._awaited[reply.future] = None
            reply.future.add_done_callback(lambda future: self.in_turn(self._future_done, place, future))
        else:
            self._answers.take(place, reply.response)

    def _look_ahead(self, preparing: Api) -> None:
        """Later requests wait for a request of this API: let the handler expect the first ones of them."""
        dispatcher = self._host.dispatcher

        def begin(frame: bytearray) -> bool:
            if not dispatcher.may_be_expected(frame, preparing):
                return False
            try:
                self._handler.expect(dispatcher.begin(frame, self._context))
            except MalformedRequest:  # ends the connection in its turn
                return False
            return True

        self._backlog.expect(begin)

    def _serially(self, work: Coroutine[Any, Any, T], then: Callable[[T], None], place: Place | None = None) -> None:
        """Later requests of the connection wait for this work. Without a place, the request has not begun."""
        self._serial = asyncio.create_task(work)
        self._serial.add_done_callback(lambda task: self.in_turn(self._serial_done, task, then, place))

    def _serial_done(self, task: asyncio.Task[T], then: Callable[[T], None], place: Place | None) -> None:
        self._serial = self._preparing = None
        if self._has_failed(task, place):
            return
        then(task.result())
        if self.ending is not None and self.idle:  # the request that waited for this work does not begin any more
            self._output.end(self.ending)
        self.run()

    def _has_failed(self, work: asyncio.Future[Any], place: Place | None) -> bool:
        """There is no result, or nobody to get it."""
        if self._closed:
            forget(work)
            return True
        if work.cancelled():  # the connection is still open, so a log that the work waited for was closed
            self._output.end("interrupted")
            return True
        error = work.exception()
        if error is not None:
            self.fail(place.call if place is not None else None, error)
        return error is not None

    def mute(self, throttle_time_ms: int) -> None:
        """Run no request for this time, or longer if it is muted for longer already. Running requests are answered."""
        end_s = self._loop.time() + throttle_time_ms / 1000
        if self._muted is not None:
            end_s = max(end_s, self._muted.when())
            self._muted.cancel()
        self._muted = self._loop.call_at(end_s, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self.run()

    # Answers

    def _future_done(self, place: Place, future: asyncio.Future[Response]) -> None:
        self._awaited.pop(future, None)
        if not self._has_failed(future, place):
            self._answers.take(place, future.result(), later=True)

    def write(self, buffers: list[Buffer], request_bytes: int, decoded_bytes: int) -> None:
        """Write the next answers. The sizes are what their requests hold in the budgets."""
        self.memory.answered(request_bytes, decoded_bytes)
        self._output.write(buffers)
        if self.ending is not None and not self._answers.places and self._serial is None:
            self._output.end(self.ending)

    def written_later(self) -> None:
        """Answers were written: requests that waited for them may run, or be read."""
        if self._backlog:
            self.run()
        elif not self._output.is_reading:
            self._output.progressed()

    # The end

    def fail(self, call: Call | None, error: BaseException) -> None:
        """Log a failure of the gateway and close the connection. Malformed requests and refusals are no failures."""
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
        """Read nothing more, and close when the requests before the malformed one are answered."""
        self.ending = "unsupported request" if isinstance(error, UnsupportedRequest) else "malformed request"
        log.info("connection ends", reason=self.ending, address=self._context.client.address, error=str(error))
        self._backlog.drop()
        if not self._answers.places:
            self._output.end(self.ending)

    def finish(self, reason: str) -> None:
        """Begin no more requests, and close when those that have begun are answered."""
        self.ending = self.ending or reason
        self.drop_backlog()

    def drop_backlog(self) -> None:
        """The connection is being closed."""
        self._backlog.drop()

    def close(self) -> None:
        """The client has disconnected and waits for no answers."""
        self._closed = True
        self._handler.close()
        self.admission.leave()
        self._answers.close()
        self._backlog.drop()
        if self._muted is not None:
            self._muted.cancel()
        self.memory.close()
        if self._serial is not None:
            self._serial.cancel()
        for future in tuple(self._awaited):
            future.cancel()
        self._output = Gone()
        self._context.client.mute = lambda throttle_time_ms: None  # no requests are left to run
