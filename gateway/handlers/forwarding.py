"""Requests of clients that know one address for all gateways: each is answered by the gateway whose it is.

What this gateway leads is handled here, as for any client; the rest is sent on, and the answers are merged. An answer
that is lost with its gateway becomes the one that clients ask again after: NOT_LEADER_OR_FOLLOWER or NOT_COORDINATOR.
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
from gateway.fleet.peers import PeerLink, Peers
from gateway.handlers.call import Call, Client, ClosesConnection, Outcome, Response, Services
from gateway.handlers.forwarded_fetch import ForwardedFetches
from gateway.handlers.forwarded_produce import ProduceOrder
from gateway.handlers.routes import FETCH, PRODUCE, ROUTES, Route
from gateway.storage.topic_names import CONSUMER_OFFSETS
from protocol.kafka.codec import Buffer, MalformedRequest, decode_response, encode_request

log = structlog.get_logger()


@dataclass(frozen=True)
class Forwarding:
    """What the forwarders of all clients share."""

    peers: Peers
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
        self._links: dict[str, PeerLink] = {}
        self._produce_order = ProduceOrder(client.refused)
        self._fetches = ForwardedFetches(self._ask)

    def run(self, call: Call) -> Outcome | Coroutine[Any, Any, Outcome]:
        leaders = FleetLeaders(call.services)
        if call.api.key == FETCH:
            return self._fetches.run(call, leaders)
        if call.api.key == PRODUCE:
            return self._produce(call, leaders)
        route = ROUTES.get(call.api.key)
        return call.api.handle(call) if route is None else self._hand_out(call, route, leaders)

    def close(self) -> None:
        """The client has gone."""
        self._fetches.close()
        for link in tuple(self._links.values()):
            link.close()

    async def _produce(self, call: Call, leaders: FleetLeaders) -> Outcome:
        fleet, order = call.services.fleet, self._produce_order
        while not order.is_settled(fleet.epoch):
            await order.settled()
        epoch = fleet.epoch
        outcome = await self._hand_out(call, ROUTES[PRODUCE], leaders)
        order.sent(epoch, outcome)
        return outcome

    async def _hand_out(self, call: Call, route: Route, leaders: FleetLeaders) -> Outcome:
        """Each share is on its way when this returns, so that later requests stay behind it; answers come later."""
        shares = route.split(call.request, call.version, leaders)
        outcomes = [await self._begin(replace(call, request=share), leader) for leader, share in shares.items()]
        if len(outcomes) == 1 or outcomes[0] is None:
            return outcomes[0]
        return asyncio.ensure_future(_merged(route, outcomes))

    async def _begin(self, call: Call, leader: Member | None) -> Outcome:
        if leader is None:
            return await _begun(call.api.handle(call))
        link = self._link(leader)
        if not await link.ready() or not self._may_follow(call):
            return await self._refused(call)
        encode = partial(_encode, call)
        if call.api.key == PRODUCE and call.request.acks == 0:
            if not link.send_unanswered(encode):
                raise ClosesConnection("a batch with acks=0 cannot be passed on")
            return None
        return asyncio.ensure_future(self._answer(call, link, link.send(encode)))

    async def _ask(self, call: Call, leader: Member | None) -> Response:
        return await _answered(await self._begin(call, leader))

    async def _answer(self, call: Call, link: PeerLink, frame: asyncio.Future[memoryview | None]) -> Response:
        received = await frame
        if received is None:
            return await _answered(await self._refused(call))
        try:
            response = decode_response(call.api.response, call.version, received)
        except MalformedRequest as error:
            log.error("a peer's answer cannot be read", node_id=link.member.node_id, error=str(error))
            return await _answered(await self._refused(call))
        if call.api.key == PRODUCE:
            self._produce_order.answered(call.request, response)
        return response

    def _may_follow(self, call: Call) -> bool:
        return call.api.key != PRODUCE or self._produce_order.may_follow(call.request)

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
    return encode_request(call.api.request, call.version, correlation_id, call.client_id, call.request)


async def _begun(outcome: Outcome | Coroutine[Any, Any, Outcome]) -> Outcome:
    return await outcome if isinstance(outcome, CoroutineType) else outcome


async def _answered(outcome: Outcome) -> Response:
    return await outcome if isinstance(outcome, asyncio.Future) else outcome


async def _merged(route: Route, outcomes: Sequence[Outcome]) -> Response:
    return route.merge([await _answered(outcome) for outcome in outcomes])
