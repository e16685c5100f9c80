"""The answers of one connection: encoded, and written in the order of its requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from gateway.dispatch import PRODUCE
from gateway.network.host import Host
from gateway.requests.call import Call
from gateway.requests.reply import Reply, Response
from protocol.kafka.buffers import Buffer


class Place:
    """The place of one answer in the order of answers."""

    __slots__ = ("_answers", "api", "buffers", "call", "decoded_bytes", "request_bytes")

    def __init__(self, answers: Answers, request_bytes: int) -> None:
        self._answers = answers
        self.request_bytes = request_bytes
        self.decoded_bytes = 0
        """What it holds in the budget of decoded requests."""
        self.call: Call | None = None
        """None while the request is not decoded, and for a request that needs no decoding."""
        self.api = PRODUCE
        self.buffers: list[Buffer] | None = None

    def decoded(self, call: Call, decoded_bytes: int = 0) -> None:
        self.call, self.api, self.decoded_bytes = call, call.api, decoded_bytes

    def give_up_memory(self) -> tuple[int, int]:
        """Hold nothing in the budgets any more. Returns what was held: as a request, and decoded."""
        held = self.request_bytes, self.decoded_bytes
        self.request_bytes = self.decoded_bytes = 0
        return held

    def answer_at_once(self, buffers: list[Buffer]) -> None:
        """Answer with a frame that is already encoded, while the request is being handled."""
        self.buffers = buffers

    def answer(self, *buffers: Buffer) -> None:
        """Answer with a frame that is already encoded, after the request was handled."""
        self.buffers = [*buffers]
        if not self._answers.writes_soon:
            self._answers.write_later_answer()

    def answer_now(self, buffers: list[Buffer]) -> None:
        """The same without waiting for the answers of other requests of this turn."""
        self.buffers = buffers
        self._answers.write_in_turn()

    def respond(self, call: Call, response: Response) -> None:
        """Answer after the handler has returned."""
        self.call = call
        self._answers.take(self, response, later=True)

    def reply(self, call: Call, reply: Reply) -> None:
        """The same with a reply."""
        if reply.future is None and reply.preparation is None:
            self.respond(call, reply.response)
        else:
            self.call = call
            self._answers.take_reply(self, reply)

    def fail(self, error: Exception) -> None:
        """There is no answer, because of a defect."""
        self._answers.fail(self, error)


class AnswersOwner(Protocol):
    """The pipeline."""

    @property
    def nothing_waits(self) -> bool:
        """No request waits behind those that have begun."""

    def write(self, buffers: list[Buffer], request_bytes: int, decoded_bytes: int) -> None:
        """Write the next answers. The sizes are what their requests hold in the budgets."""

    def in_turn(self, step: Callable[[], None]) -> None:
        """Run a step that follows some waiting, when the connection has its turn."""

    def written_later(self) -> None:
        """Answers were written: requests that waited for them may run."""

    def take_reply(self, place: Place, reply: Reply) -> None:
        """Wait for the response to the call of a place."""

    def fail(self, call: Call | None, error: BaseException) -> None:
        """An answer cannot be produced."""


class Answers:
    def __init__(self, host: Host, owner: AnswersOwner, *, in_order: bool) -> None:
        self._host = host
        self._owner = owner
        self._in_order = in_order
        self._loop = asyncio.get_running_loop()
        self._in_flight = host.metrics.in_flight
        self.places: list[Place] = []
        """The places of the answers that are not written yet."""
        self.encoding: dict[asyncio.Future[list[Buffer]], Place] = {}
        """Answers that are being encoded in threads, with their places."""
        self.writes_soon = False
        self._closed = False

    def add(self, place: Place) -> None:
        """Append a place behind the others."""
        self.places.append(place)
        self._in_flight.value += 1

    def take(self, place: Place, response: Response, *, later: bool = False) -> None:
        """Encode the response to the call of a place. ``later``: the response came after the handler had returned."""
        assert place.call is not None
        dispatcher = self._host.dispatcher
        if self._closed:
            dispatcher.charge_unanswered(place.call, response)
            return
        try:
            response = dispatcher.complete(place.call, response)
            if dispatcher.is_large_answer(place.call, response):
                self._encode_large(place, place.call, response)
                return
            place.buffers = dispatcher.encode(place.call, response)
        except Exception as error:
            self._owner.fail(place.call, error)
            return
        if later:
            self.write_later_answer()
        else:
            self.write()

    def take_reply(self, place: Place, reply: Reply) -> None:
        if not self._closed:
            self._owner.take_reply(place, reply)

    def fail(self, place: Place, error: Exception) -> None:
        if not self._closed:
            self._owner.fail(place.call, error)

    def _encode_large(self, place: Place, call: Call, response: Response) -> None:
        encoding = self._loop.run_in_executor(self._host.threads, self._host.dispatcher.encode, call, response)
        self.encoding[encoding] = place
        encoding.add_done_callback(lambda task: self._encoded(place, task))

    def _encoded(self, place: Place, task: asyncio.Future[list[Buffer]]) -> None:
        self.encoding.pop(task, None)
        if self._closed or task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._owner.fail(place.call, error)
            return
        place.buffers = task.result()
        self.write_later_answer()

    def write_later_answer(self) -> None:
        """Write an answer that came after its request was handled. It does not wait if it is the only one.

        One entry's receipt answers many requests: writing in the next turn sends the answers of a connection in one
        system call.
        """
        if self.writes_soon:
            return
        if len(self.places) == 1 and self._owner.nothing_waits:
            self.write_in_turn()
        else:
            self.writes_soon = True
            self._loop.call_soon(self.write_in_turn if self._host.turns.by_cluster else self._write_now)

    def write_in_turn(self) -> None:
        if not self._closed:
            self._owner.in_turn(self._write_now)

    def _write_now(self) -> None:
        self.writes_soon = False
        if not self._closed:
            self.write()
            self._owner.written_later()

    def write(self) -> None:
        """Write the answers that are next in order."""
        places = self.places
        if not self._in_order:
            places = self.places = sorted(places, key=lambda place: place.buffers is None)
        ready: list[Buffer] = []
        count = request_bytes = decoded_bytes = 0
        for place in places:
            if place.buffers is None:
                break
            ready += place.buffers
            request_bytes += place.request_bytes
            decoded_bytes += place.decoded_bytes
            count += 1
        if not count:
            return
        del places[:count]
        self._in_flight.value -= count
        self._owner.write(ready, request_bytes, decoded_bytes)

    def close(self) -> None:
        """The client has disconnected and waits for no answers."""
        self._closed = True
        self._charge_unanswered()
        self._in_flight.value -= len(self.places)
        self.places.clear()
        for task in self.encoding:
            task.cancel()
        # the owner refers to this object: the reference cycle would stay until the garbage collector runs
        del self._owner

    def _charge_unanswered(self) -> None:
        """Charge the requests that nobody will answer. Those without a call are charged by the fast path of their API,
        when the answer is known."""
        encoding = {*self.encoding.values()}
        for place in self.places:
            if place.call is not None and place.buffers is None and place not in encoding:
                self._host.dispatcher.charge_unanswered(place.call)
