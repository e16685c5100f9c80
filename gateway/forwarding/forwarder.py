"""Requests of clients that know one address for all gateways: each is answered by the gateway whose it is.

What this gateway leads is handled here, as for any client. What one other leads is passed on as it came, and so is its
answer; what several lead is split, and the answers are merged. An answer that is lost with its gateway becomes the one
that clients ask again after: NOT_LEADER_OR_FOLLOWER or NOT_COORDINATOR.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import CoroutineType
from typing import Any

import structlog

from coordinator.fleet.messages import Member
from gateway.background import run_once
from gateway.errors import KafkaError
from gateway.fetching.fetch_answer import FetchAnswer
from gateway.forwarding.fetch_relay import PassedFetches
from gateway.forwarding.forwarded_fetch import ForwardedFetches
from gateway.forwarding.forwarded_produce import ProduceOrder
from gateway.forwarding.peers import PeerLink, Peers
from gateway.forwarding.routes import FETCH, PRODUCE, ROUTES, Route, Shares
from gateway.handlers.records.produce import look_up_names, names_known
from gateway.requests.call import Call, Client, ClosesConnection, Outcome, PassedBack, Response, Services
from gateway.topics.topic_names import CONSUMER_OFFSETS
from protocol.kafka.codec import Buffer, decode_response, encode_request, readdress_request
from protocol.kafka.fetch_request import limit_max_bytes
from protocol.kafka.produce_response import is_written

log = structlog.get_logger()


@dataclass(frozen=True)
class Forwarding:
    """What the forwarders of all clients share."""

    peers: Peers
    leaders: FleetLeaders
    elsewhere: Services
    """With these, every handler answers as one that leads nothing."""
    listeners: frozenset[str]
    """Those with a single address."""

    def forwarder(self, client: Client) -> Forwarder | None:
        return Forwarder(self, client) if client.listener in self.listeners else None


class FleetLeaders:
    """As this gateway knows them. None is itself, and nobody."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def epoch(self) -> int:
        return self._services.fleet.epoch

    @property
    def others(self) -> Sequence[Member]:
        return [member for member in self._services.fleet.members if member.node_id != self._services.node_id]

    def of_partition(self, topic: str, partition: int) -> Member | None:
        leader = self._services.fleet.leader(topic, partition)
        return None if leader is None or leader.node_id == self._services.node_id else leader

    def of_group(self, group_id: str) -> Member | None:
        partition = self._services.groups.partition_of(group_id)
        return None if partition is None else self.of_partition(CONSUMER_OFFSETS, partition)


class Forwarder:
    """Of one client."""

    def __init__(self, forwarding: Forwarding, client: Client) -> None:
        self._forwarding = forwarding
        self._client = client
        self._leaders = forwarding.leaders
        self._loop = asyncio.get_running_loop()
        self._links: dict[str, PeerLink] = {}
        self._produce_order = ProduceOrder(client.refused)
        self._fetches = ForwardedFetches(self._ask, forwarding.elsewhere.unread)
        self._passed_fetches = PassedFetches()
        self._fetching: asyncio.Future[Response] | None = None
        """The fetch that is passed on and not answered yet."""
        self._refusing: set[asyncio.Task[None]] = set()
        self._closed = False

    def run(self, call: Call) -> Outcome | Coroutine[Any, Any, Outcome]:
        if call.api.key == FETCH:
            return self._fetch(call)
        if call.api.key == PRODUCE:
            return self._produce(call)
        route = ROUTES.get(call.api.key)
        return call.api.handle(call) if route is None else self._hand_out(call, route)

    def close(self) -> None:
        """The client has gone."""
        self._closed = True
        self._fetching = None
        self._fetches.close()
        for task in self._refusing:
            task.cancel()
        for link in tuple(self._links.values()):
            link.close()

    # Produce

    def _produce(self, call: Call) -> Outcome | Coroutine[Any, Any, Outcome]:
        if not names_known(call):
            return self._produce_when_named(call)
        return self._produce_named(call)

    async def _produce_when_named(self, call: Call) -> Outcome:
        await look_up_names(call)
        return await _begun(self._produce_named(call))

    def _produce_named(self, call: Call) -> Outcome | Coroutine[Any, Any, Outcome]:
        order, epoch = self._produce_order, self._leaders.epoch
        if not order.is_settled(epoch):
            return self._produce_when_settled(call)
        outcome = self._hand_out(call, ROUTES[PRODUCE])
        if isinstance(outcome, CoroutineType):
            return self._produced(outcome, epoch)
        order.sent(epoch, outcome)
        return outcome

    async def _produce_when_settled(self, call: Call) -> Outcome:
        while not self._produce_order.is_settled(self._leaders.epoch):
            await self._produce_order.settled()
        return await _begun(self._produce_named(call))

    async def _produced(self, handing_out: Coroutine[Any, Any, Outcome], epoch: int) -> Outcome:
        outcome = await handing_out
        self._produce_order.sent(epoch, outcome)
        return outcome

    # Fetch

    def _fetch(self, call: Call) -> Outcome | Coroutine[Any, Any, Outcome]:
        if self._fetching is not None and not self._fetching.done():
            return self._fetch_next(call, self._fetching)
        try:
            leader = self._passed_fetches.leader(call, self._leaders)
        except KafkaError as error:
            return FetchAnswer(error_code=error.code)
        if leader is None:
            return self._fetches.run(call, self._leaders)
        limits = call.services.config.limits
        if call.frame is not None and call.services.unread.size_bytes > limits.fetch_budget_bytes:
            limit_max_bytes(call.frame, call.version, 1)  # one batch, until clients have taken what they asked for
        return self._begin(call, leader)

    async def _fetch_next(self, call: Call, previous: asyncio.Future[Response]) -> Outcome:
        """One fetch after the other, as in Kafka: so what a client that does not read pins here stays bounded."""
        await asyncio.wait([previous])
        return await _begun(self._fetch(call))

    # Shares

    def _hand_out(self, call: Call, route: Route) -> Outcome | Coroutine[Any, Any, Outcome]:
        """Each share is on its way when this is over, so that later requests stay behind it; answers come later."""
        shares = route.split(call.request, call.version, self._leaders)
        if len(shares) == 1:
            return self._begin(call, next(iter(shares)))
        return self._hand_out_shares(call, route, shares)

    async def _hand_out_shares(self, call: Call, route: Route, shares: Shares) -> Outcome:
        outcomes = [await _begun(self._begin(call.asking(share), leader)) for leader, share in shares.items()]
        return asyncio.ensure_future(_merged(route, outcomes))

    def _begin(self, call: Call, leader: Member | None) -> Outcome | Coroutine[Any, Any, Outcome]:
        if leader is None:
            return call.api.handle(call)
        link = self._link(leader)
        if link.writable and self._may_follow(call):
            return self._pass_on(call, link)
        return self._begin_when_ready(call, link)

    async def _begin_when_ready(self, call: Call, link: PeerLink) -> Outcome:
        if not await link.ready() or not self._may_follow(call):
            return await self._refused(call)
        return self._pass_on(call, link)

    async def _ask(self, call: Call, leader: Member | None) -> Response:
        return await _answered(await _begun(self._begin(call, leader)))

    def _pass_on(self, call: Call, link: PeerLink) -> Outcome:
        encode = partial(_encode, call)
        if call.api.key == PRODUCE and call.request.acks == 0:
            if not link.send_unanswered(encode):
                raise ClosesConnection("a batch with acks=0 cannot be passed on")
            return None
        future: asyncio.Future[Response] = self._loop.create_future()
        link.send(encode, partial(self._answer, call, link, future))
        if call.api.key == FETCH and call.frame is not None:
            self._fetching = future
            future.add_done_callback(self._fetched)
        return future

    def _fetched(self, answered: asyncio.Future[Response]) -> None:
        if self._fetching is answered:  # it holds the records
            self._fetching = None

    def _answer(self, call: Call, link: PeerLink, future: asyncio.Future[Response], frame: bytearray | None) -> None:
        if future.done() or self._closed:
            return
        try:
            response = None if frame is None else self._response(call, link.member, frame)
        except ValueError as error:
            log.error("a peer's answer cannot be read", node_id=link.member.node_id, error=str(error))
            response = None
        if response is not None:
            future.set_result(response)
            return
        if call.api.key == PRODUCE:
            self._produce_order.lost(call.request)
        task = run_once("refusal of a lost share", self._refuse(call, future))
        self._refusing.add(task)
        task.add_done_callback(self._refusing.discard)

    def _response(self, call: Call, leader: Member, frame: bytearray) -> Response:
        """As it came, if it answers a whole request. Raises ValueError."""
        view = memoryview(frame)
        if call.api.key == PRODUCE and not is_written(call.version, view):
            self._produce_order.answered(call.request, decode_response(call.api.response, call.version, view))
        if call.frame is None:
            return decode_response(call.api.response, call.version, view)
        if call.api.key == FETCH:
            self._passed_fetches.answered(call, self._leaders, leader, frame)
        return PassedBack(frame)

    # Refusals

    def _may_follow(self, call: Call) -> bool:
        return call.api.key != PRODUCE or self._produce_order.may_follow(call.request)

    async def _refuse(self, call: Call, future: asyncio.Future[Response]) -> None:
        try:
            response = await _answered(await self._refused(call))
        except Exception as error:  # a defect: whoever waits hears of it
            future.set_exception(error)
        else:
            if not future.done():
                future.set_result(response)

    async def _refused(self, call: Call) -> Outcome:
        if call.api.key == PRODUCE and call.request.acks == 0:
            raise ClosesConnection("a batch with acks=0 cannot be passed on")
        return await _begun(call.api.handle(replace(call, services=self._forwarding.elsewhere)))

    # Links

    def _link(self, member: Member) -> PeerLink:
        link = self._links.get(member.incarnation)
        if link is None:
            link = self._forwarding.peers.open(member, self._client.address, self._lost)
            self._links[member.incarnation] = link
        return link

    def _lost(self, link: PeerLink) -> None:
        self._links.pop(link.member.incarnation, None)
        if link.unanswered:  # as the leader does, if it can: batches with acks=0 may be lost
            self._client.close("a peer was lost")


def _encode(call: Call, correlation_id: int) -> list[Buffer]:
    if call.frame is not None:
        return readdress_request(call.frame, correlation_id)
    return encode_request(call.api.request, call.version, correlation_id, call.client_id, call.request)


async def _begun(outcome: Outcome | Coroutine[Any, Any, Outcome]) -> Outcome:
    return await outcome if isinstance(outcome, CoroutineType) else outcome


async def _answered(outcome: Outcome) -> Response:
    return await outcome if isinstance(outcome, asyncio.Future) else outcome


async def _merged(route: Route, outcomes: Sequence[Outcome]) -> Response:
    """None for a produce request with acks=0, which has no answer. Raises what any share raises."""
    responses = await asyncio.gather(*map(_answered, outcomes))
    return None if any(each is None for each in responses) else route.merge(responses)
