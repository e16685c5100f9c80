"""The fast path of forwarded Produce requests: those that differ from an earlier one of their connection only in their
batch.

The bytes before the batch are compared, not decoded. The frame goes to the leader as it came, and the answer to the
client, each with another correlation id. Any other request, and any answer with an error, takes the general path
(`forwarder`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

from coordinator.fleet.messages import Member
from gateway.forwarding.forwarded_produce import NO_EPOCH, ProduceOrder
from gateway.forwarding.peers import PeerLink
from gateway.handlers.place import Place
from gateway.handlers.records.known_produce import HEADER, with_records, written_row
from gateway.requests.call import Call
from gateway.requests.context import RequestContext
from gateway.requests.policy import ALL_ALLOWED
from gateway.requests.reply import RelayedResponse
from protocol.kafka.acl import AclOperation, ResourceType
from protocol.kafka.codec import readdress_request, readdress_response
from protocol.kafka.handwritten.produce_request import single_batch
from protocol.kafka.messages.records import ProduceRequest

_WRITE, _TOPIC = AclOperation.WRITE, ResourceType.TOPIC
"""Reading the attribute of an enum is slow."""
AnswerGenerally = Callable[[Call[ProduceRequest], PeerLink, bytearray | None, Place], None]


class Leaders(Protocol):
    @property
    def epoch(self) -> int: ...

    def of_partition(self, topic: str, partition: int) -> Member | None: ...


class RelayRoute(NamedTuple):
    """Where one client's requests go."""

    leaders: Leaders
    links: Mapping[str, PeerLink]
    """The open links by incarnation."""
    order: ProduceOrder
    answer: AnswerGenerally
    """Answers a request on the general path, with the leader's frame, or None if the link is lost. It calls
    `order.answered_one` later."""


class KnownRelay:
    """The bytes before the batch, and what follows from them."""

    def __init__(self, route: RelayRoute, call: Call[ProduceRequest], start: bytes) -> None:
        [topic] = call.request.topic_data
        self.start = start
        self.call = call.asking(with_records(call.request, None))
        self.metrics = call.cluster.metrics.request(call.api.name, call.version)
        self.charges = None if call.context.meter is None else call.context.meter.repeated(call)
        self.route = route
        self.row = written_row(call)
        self._link: PeerLink | None = None
        """The link to the leader in the fleet's epoch `_epoch`."""
        self._epoch = NO_EPOCH
        self._name, self._index, self._topic_id = topic.name, topic.partition_data[0].index, topic.topic_id
        self._key = (call.api.key, call.version)
        self._transactional = call.request.transactional_id is not None
        self._batch_at = HEADER.size + len(start)

    def handle(self, frame: bytearray, context: RequestContext, place: Place) -> bool:
        """False: nothing was done."""
        started = time.perf_counter()
        api_key, version, correlation_id = HEADER.unpack_from(frame)
        route, client = self.route, self.call.client
        if (api_key, version) != self._key or client.refused or not self._is_open_to(context):
            return False
        epoch, link = route.leaders.epoch, self._link
        if link is None or epoch != self._epoch or not link.writable:
            link = self._find_link(epoch)
        if link is None or not route.order.is_drained(epoch):
            return False
        if single_batch(version, frame, self._batch_at) is None:
            return False
        batch = _Batch(self, link, place, correlation_id, frame, started)
        route.order.sent(epoch)
        link.send(partial(readdress_request, frame), batch.answered)
        batch.busy_s = time.perf_counter() - started
        return True

    def _find_link(self, epoch: int) -> PeerLink | None:
        """None if there is none to the leader, or no room in it."""
        leader = self.route.leaders.of_partition(self._name, self._index)
        link = None if leader is None else self.route.links.get(leader.incarnation)
        self._link, self._epoch = link, epoch
        return link if link is not None and link.writable else None

    def _is_open_to(self, context: RequestContext) -> bool:
        """The client may write to the topic, which is still the one with the id.

        The leader looks up names: this gateway may not know the topic, if the client got metadata from another one.
        """
        if self._topic_id is not None:
            topic = self.call.cluster.topics.cached(self._name)
            if topic is None or topic.topic_id != self._topic_id:
                return False
        policy = context.policy
        return policy is ALL_ALLOWED or (not self._transactional and policy.allows(_WRITE, _TOPIC, self._name))


class _Batch:
    """A batch that was forwarded."""

    __slots__ = ("_correlation_id", "_frame", "_known", "_link", "_place", "_started", "busy_s")

    def __init__(
        self, known: KnownRelay, link: PeerLink, place: Place, correlation_id: int, frame: bytearray, started: float
    ) -> None:
        self._known = known
        self._link = link
        self._place = place
        self._correlation_id = correlation_id
        self._frame = frame
        self._started = started
        self.busy_s = 0.0

    def answered(self, frame: bytearray | None) -> None:
        """The leader has answered, or None: the link is lost."""
        known = self._known
        if frame is None or not known.row.matches(frame):
            known.route.answer(self._call(), self._link, frame, self._place)
            return
        known.route.order.answered_one()
        if known.charges is None or known.charges.charge_within(len(self._frame), self.busy_s):
            known.metrics.answered(time.perf_counter() - self._started)
            self._place.answer(*readdress_response(frame, self._correlation_id))
        else:
            self._place.respond(self._call(), RelayedResponse(frame))

    def _call(self) -> Call[ProduceRequest]:
        """The request on the general path, which charges it."""
        call, at = self._known.call, HEADER.size + len(self._known.start)
        request = with_records(call.request, single_batch(call.version, self._frame, at))
        return replace(
            call, request=request, correlation_id=self._correlation_id, frame=self._frame, started=self._started,
            busy_s=self.busy_s,
        )  # fmt: skip
