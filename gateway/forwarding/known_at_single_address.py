"""The fast paths of one client at a single address: requests that resemble earlier ones of it are not decoded.

A batch goes to its leader (`known_relay`). What this gateway leads is handled as for clients that choose the gateway by
themselves. Other requests, and all of them after a change of the fleet, take the general path (`forwarder`), which
finds the gateway that answers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from gateway.forwarding.forwarded_produce import ProduceOrder
from gateway.forwarding.known_relay import KnownRelay, RelayRoute
from gateway.handlers.known_requests import KnownRequests
from gateway.handlers.place import LaterPlace, Place
from gateway.handlers.records.known_produce import Kind, KnownProduce, KnownProduces, appended_kind
from gateway.requests.call import Call, asks
from gateway.requests.context import RequestContext
from gateway.requests.reply import Response
from protocol.kafka.api_key import ApiKey
from protocol.kafka.buffers import Buffer
from protocol.kafka.messages.groups import OffsetCommitRequest
from protocol.kafka.messages.records import FetchRequest, ProduceRequest

_PRODUCE, _FETCH = (key.to_bytes(2, "big") for key in (ApiKey.Produce, ApiKey.Fetch))


class KnownAtSingleAddress:
    """The requests of one client that need not be decoded."""

    def __init__(self, route: RelayRoute, forget_fetches: Callable[[], None]) -> None:
        """`forget_fetches` is called when this gateway alone answers a fetch."""
        self._route = route
        self._forget_fetches = forget_fetches
        self._batches = KnownProduces(self._kind_of)
        self._led_here = KnownRequests()
        """Commits and fetches that this gateway has answered alone in the fleet's epoch `_epoch`."""
        self._epoch = route.leaders.epoch

    def handle(self, frame: bytearray, context: RequestContext, place: Place) -> bool:
        """False: nothing was done."""
        if frame.startswith(_PRODUCE):
            return self._batches.handle(frame, context, place)
        if self._epoch != self._route.leaders.epoch or not self._led_here.handle(frame, context, place):
            return False
        if frame.startswith(_FETCH):
            self._forget_fetches()
        return True

    def learn(self, call: Call, epoch: int) -> None:
        """Remember a batch, or a commit or a fetch that this gateway alone answers as the leader in this epoch."""
        if asks(call, ProduceRequest):
            self._batches.learn(call)
        elif asks(call, FetchRequest) or asks(call, OffsetCommitRequest):
            self._learn_led_here(call, epoch)

    def _learn_led_here(self, call: Call, epoch: int) -> None:
        if epoch != self._epoch:
            self.close()
            self._led_here, self._epoch = KnownRequests(), epoch
        self._led_here.learn(call)

    def close(self) -> None:
        """The client has disconnected."""
        self._led_here.close()

    def _kind_of(self, call: Call[ProduceRequest]) -> Kind | None:
        [topic] = call.request.topic_data
        if self._route.leaders.of_partition(topic.name, topic.partition_data[0].index) is not None:
            return partial(KnownRelay, self._route)
        return None if appended_kind(call) is None else partial(_ProduceHere, self._route)


class _ProduceHere:
    """A request of one batch for a partition that this gateway leads."""

    def __init__(self, route: RelayRoute, call: Call[ProduceRequest], start: bytes) -> None:
        self.start = start
        self._route = route
        self._produce = KnownProduce(call, start)

    def handle(self, frame: bytearray, context: RequestContext, place: Place) -> bool:
        """False: nothing was done."""
        epoch, order = self._route.leaders.epoch, self._route.order
        if not order.is_drained(epoch):
            return False
        order.sent(epoch)
        if self._produce.handle(frame, context, _CountedPlace(place, order)):
            return True
        order.answered_one()
        return False


class _CountedPlace(NamedTuple):
    """The place of an answer after which the batch counts no more as unanswered."""

    place: LaterPlace
    order: ProduceOrder

    def answer(self, *buffers: Buffer) -> None:
        self.order.answered_one()
        self.place.answer(*buffers)

    def respond(self, call: Call, response: Response) -> None:
        self.order.answered_one()
        self.place.respond(call, response)
