"""Requests of clients that know one address for all gateways: the responsible gateway answers each request.

This gateway handles requests for what it leads as for any client. A request for one other leader is forwarded
unchanged, and so is its answer; a request for several leaders is split, and the answers are merged. If an answer is
lost with its gateway, the client gets an error after which clients retry: NOT_LEADER_OR_FOLLOWER or NOT_COORDINATOR.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import structlog

from coordinator.fleet.messages import Member
from gateway.background import run_once
from gateway.errors import KafkaError
from gateway.fetching.fetch_answer import FetchAnswer
from gateway.forwarding.fetch_relay import FetchRelay
from gateway.forwarding.fleet_leaders import FleetLeaders
from gateway.forwarding.forwarded_fetch import ForwardedFetches
from gateway.forwarding.forwarded_produce import ProduceOrder
from gateway.forwarding.known_at_single_address import KnownAtSingleAddress
from gateway.forwarding.known_relay import RelayRoute
from gateway.forwarding.large_messages import decoded, encode_call, encoded, is_large, is_large_answer, merged
from gateway.forwarding.peers import Encode, PeerLink, Peers
from gateway.forwarding.relayed_fetch import RelayedFetch
from gateway.handlers.known_requests import KNOWN_APIS
from gateway.handlers.place import Place
from gateway.handlers.records.expected_produces import ExpectedProduces
from gateway.handlers.records.fetch_bounds import is_room_for_answers
from gateway.handlers.records.produce import look_up_names, names_known
from gateway.log.writing.refused_batches import RefusedBatches
from gateway.requests.call import Call, ClosesConnection, asks
from gateway.requests.cluster import Cluster
from gateway.requests.context import Client, RequestContext
from gateway.requests.policy import ALL_ALLOWED
from gateway.requests.reply import RelayedResponse, Reply, Response, all_prepared, run_waiting
from gateway.requests.routes import Route, Shares
from gateway.requests.waiting_members import waits_for_members, without_request_when
from protocol.kafka.codec import decode_response, readdress_request
from protocol.kafka.handwritten.fetch_request import do_not_wait, limit_max_bytes
from protocol.kafka.handwritten.produce_response import is_written
from protocol.kafka.messages.message import Message
from protocol.kafka.messages.records import FetchRequest, ProduceRequest, ProduceResponse

log = structlog.get_logger()


@dataclass(frozen=True)
class Forwarding:
    """What the forwarders of all clients share."""

    peers: Peers
    leaders: FleetLeaders
    elsewhere: Cluster
    """The cluster as seen by a gateway that leads nothing: with it, every handler refuses."""


class Forwarder:
    """Forwards the requests of one client."""

    def __init__(self, forwarding: Forwarding, client: Client) -> None:
        self._forwarding, self._client = forwarding, client
        self._leaders = forwarding.leaders
        self._loop = asyncio.get_running_loop()
        self._links: dict[str, PeerLink] = {}
        self._produce_order = ProduceOrder(client.refused)
        unread, remembered = forwarding.elsewhere.unread, forwarding.elsewhere.relayed_partitions
        self._fetches = ForwardedFetches(self._ask, unread, remembered, self._learn)
        self._fetch_relay = FetchRelay(remembered)
        self._expected = ExpectedProduces()
        self._relayed_fetch = RelayedFetch(client)
        self._known: KnownAtSingleAddress | None = None
        """Many clients send one request of a kind, and are then idle."""
        self._answering: set[asyncio.Task[None]] = set()
        self._closed = False

    def handle_known(self, frame: bytearray, context: RequestContext, place: Place) -> bool:
        return self._known is not None and self._known.handle(frame, context, place)

    def handle(self, call: Call) -> Reply:
        if asks(call, FetchRequest):
            return self._fetch(call)
        if asks(call, ProduceRequest):
            return self._produce(call)
        return self._distribute(call)

    def _learn(self, call: Call, epoch: int) -> None:
        """The request was forwarded as a whole, or handled by this gateway alone, in this epoch of the fleet."""
        if call.api.key not in KNOWN_APIS:
            return
        if self._known is None:
            route = RelayRoute(self._leaders, self._links, self._produce_order, self._answer_known)
            self._known = KnownAtSingleAddress(route, self._fetches.forget)
        self._known.learn(call, epoch)

    def expect(self, call: Call) -> None:
        """Prepare what this gateway leads. The leaders do the same with requests that are forwarded to them."""
        if asks(call, ProduceRequest):
            self._expected.expect(call)

    def close(self) -> None:
        """The client has disconnected."""
        self._closed = True
        self._expected.close()
        if self._known is not None:
            self._known.close()
        self._relayed_fetch.forget()
        self._fetch_relay.close()
        self._fetches.forget()
        for task in self._answering:
            task.cancel()
        for link in tuple(self._links.values()):
            link.close()

    # Produce

    def _produce(self, call: Call[ProduceRequest]) -> Reply:
        reply = self._relay_one_batch(call)
        if reply is not None:
            return reply
        if not names_known(call):
            return Reply.after(self._produce_when_named(call))
        return self._produce_named(call)

    def _relay_one_batch(self, call: Call[ProduceRequest]) -> Reply | None:
        """The common request: for one partition of another leader, to which the link is open.

        None if anything must be awaited, split or remembered.
        """
        request, topics, frame = call.request, call.request.topic_data, call.frame
        if frame is None or not request.acks or self._client.refused or len(topics) != 1:
            return None
        topic = topics[0]
        name = topic.name or call.cluster.topics.cached_name(topic.topic_id)
        if not name or len(topic.partition_data) != 1:
            return None
        leader = self._leaders.of_partition(name, topic.partition_data[0].index)
        link = None if leader is None else self._links.get(leader.incarnation)
        epoch = self._leaders.epoch
        if link is None or not link.writable or not self._produce_order.is_drained(epoch):
            return None
        future: asyncio.Future[Response] = self._loop.create_future()
        link.send(partial(readdress_request, frame), partial(self._answer, call, link, future))
        self._produce_order.sent_until(epoch, future)
        topic.name = name
        self._learn(call, epoch)
        return Reply.later(future)

    def _answer_known(self, call: Call[ProduceRequest], link: PeerLink, frame: bytearray | None, place: Place) -> None:
        """Answer a request of the fast path whose batch was refused, or whose leader is lost."""
        if self._closed:
            self._produce_order.answered_one()
            place.respond(call, None)
            return
        future: asyncio.Future[Response] = self._loop.create_future()
        future.add_done_callback(lambda _: self._produce_order.answered_one())
        self._answer(call, link, future, frame)
        place.reply(call, Reply.later(future))

    async def _produce_when_named(self, call: Call[ProduceRequest]) -> Reply:
        await look_up_names(call)
        return self._produce_named(call)

    def _produce_named(self, call: Call) -> Reply:
        epoch = self._leaders.epoch
        if not self._produce_order.is_drained(epoch):
            return Reply.after(self._produce_when_drained(call))
        return self._distribute(call).when_prepared(partial(self._produced, epoch))

    async def _produce_when_drained(self, call: Call) -> Reply:
        while not self._produce_order.is_drained(self._leaders.epoch):
            await self._produce_order.drained()
        return self._produce_named(call)

    def _produced(self, epoch: int, reply: Reply) -> Reply:
        self._produce_order.sent_until(epoch, reply.future)
        return reply

    # Fetch

    def _fetch(self, call: Call[FetchRequest]) -> Reply:
        before = self._relayed_fetch.answer
        if before is not None and not before.done():
            return Reply.after(self._fetch_next(call, before))
        if self._fetch_relay.is_large(call, self._leaders):
            return Reply.after(self._fetch_many(call))
        try:
            leader = self._fetch_relay.leader(call, self._leaders)
        except KafkaError as error:
            return Reply(FetchAnswer(error_code=error.code))
        return self._fetch_from(call, leader)

    async def _fetch_many(self, call: Call[FetchRequest]) -> Reply:
        try:
            leader = await self._fetch_relay.leader_of_many(call, self._leaders)
        except KafkaError as error:
            return Reply(FetchAnswer(error_code=error.code))
        return self._fetch_from(call, leader)

    def _fetch_from(self, call: Call[FetchRequest], leader: Member | None) -> Reply:
        """`leader` None: from several, or from this gateway."""
        if leader is None:
            return self._fetches.run(call, self._leaders)
        self._fetches.forget()
        if call.frame is not None:  # a quota may have lowered the limit
            most = call.request.max_bytes if is_room_for_answers(call.cluster) else 1
            limit_max_bytes(call.frame, call.version, most)
        return self._begin(call, leader)

    async def _fetch_next(self, call: Call[FetchRequest], previous: asyncio.Future[Response]) -> Reply:
        """One fetch at a time, as in Kafka: this bounds the memory that a client that does not read holds here."""
        await asyncio.wait([previous])
        return self._fetch(call)

    # Shares

    def _distribute(self, call: Call) -> Reply:
        """Each share is sent when this is over, so that later requests stay behind it; answers come later."""
        route = call.api.route
        if route is None:
            return call.api.handle(call)
        call.check_age()
        if is_large(call):
            return Reply.after(self._distribute_large(call, route))
        return self._distribute_shares(call, route, route.split(call.request, call.version, self._leaders))

    async def _distribute_large(self, call: Call, route: Route) -> Reply:
        shares = await route.split_in_slices(call.request, call.version, self._leaders)
        call.check_age()
        return await self._distribute_shares(call, route, shares).prepared()

    def _distribute_shares(self, call: Call, route: Route, shares: Shares[Message]) -> Reply:
        if len(shares) == 1:
            return self._begin(call, next(iter(shares)))
        return Reply.after(self._begin_all(call, route, shares))

    async def _begin_all(self, call: Call, route: Route, shares: Shares[Message]) -> Reply:
        replies = await all_prepared(self._begin(call.asking(share), leader) for leader, share in shares.items())
        return Reply.later(run_waiting(merged(route, replies), *replies))

    def _begin(self, call: Call, leader: Member | None) -> Reply:
        if leader is None:
            reply = call.api.handle(call)
            self._learn(call, self._leaders.epoch)
            return reply
        link = self._link(leader, call.context)
        if call.frame is None and is_large(call):
            return Reply.after(self._begin_large(call, link))
        if link.writable and self._may_forward(call):
            return self._forward(call, link, partial(encode_call, call))
        return Reply.after(self._begin_when_ready(call, link, partial(encode_call, call)))

    async def _begin_large(self, call: Call, link: PeerLink) -> Reply:
        return await self._begin_when_ready(call, link, await encoded(call))

    async def _begin_when_ready(self, call: Call, link: PeerLink, encode: Encode) -> Reply:
        if not await link.ready() or not self._may_forward(call):
            return await self._refused(call)
        return self._forward(call, link, encode)

    async def _ask(self, call: Call, leader: Member | None) -> Response:
        return await self._begin(call, leader).result()

    def _forward(self, call: Call, link: PeerLink, encode: Encode) -> Reply:
        if _is_unanswered(call):
            if not link.send_unanswered(encode):
                raise ClosesConnection("a batch with acks=0 cannot be forwarded")
            return Reply(None)
        future: asyncio.Future[Response] = self._loop.create_future()
        if asks(call, FetchRequest) and call.frame is not None:
            if self._client.has_ended:
                do_not_wait(call.frame, call.version)
            self._relayed_fetch.begin(link, future)
        link.send(encode, partial(self._answer, call, link, future))
        if waits_for_members(call):
            return Reply.after(without_request_when(link.flushed, call, future))
        return Reply.later(future)

    def _answer(self, call: Call, link: PeerLink, future: asyncio.Future[Response], frame: bytearray | None) -> None:
        if future.done() or self._closed:
            return
        if frame is not None and is_large_answer(call, frame):
            self._answer_with("large answer of a gateway", future, self._decode_large(call, link, frame))
            return
        if (
            frame is not None
            and call.frame is not None
            and asks(call, FetchRequest)
            and self._fetch_relay.answers_large(call)
        ):
            self._answer_with("answer to a large fetch", future, self._relay_large(call, link, frame))
            return
        response: Response = None
        try:
            response = None if frame is None else self._response(call, link.member, frame)
        except KafkaError as error:  # of a fetch: its session has ended
            response = FetchAnswer(error_code=error.code)
        except ValueError as error:
            _log_undecodable(link, error)
        if response is not None:
            future.set_result(response)
            return
        if asks(call, ProduceRequest):
            self._produce_order.lost(call.request)
        self._answer_with("refusal of a lost share", future, self._refuse(call))

    def _answer_with(self, name: str, future: asyncio.Future[Response], work: Coroutine[Any, Any, Response]) -> None:
        task = run_once(name, _answer(future, work))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        task.add_done_callback(lambda _: work.close())  # a task that is cancelled at once has not begun it

    async def _decode_large(self, call: Call, link: PeerLink, frame: bytearray) -> Response:
        try:
            return await decoded(call, frame)
        except ValueError as error:
            _log_undecodable(link, error)
        return await self._refuse(call)

    async def _relay_large(self, call: Call[FetchRequest], link: PeerLink, frame: bytearray) -> Response:
        try:
            await self._fetch_relay.answered_many(call, link.member, frame)
        except KafkaError as error:
            return FetchAnswer(error_code=error.code)
        except ValueError as error:
            _log_undecodable(link, error)
            return await self._refuse(call)
        return RelayedResponse(frame)

    def _response(self, call: Call, leader: Member, frame: bytearray) -> Response:
        """The frame as it came, if it answers a whole request. Raises ValueError."""
        view = memoryview(frame)
        if asks(call, ProduceRequest) and not is_written(call.version, view):
            self._produce_order.answered(call.request, decode_response(ProduceResponse, call.version, view))
        if call.frame is None:
            return decode_response(call.api.response, call.version, view)
        if asks(call, FetchRequest):
            self._fetch_relay.answered(call, leader, frame)
        return RelayedResponse(frame)

    # Refusals

    def _may_forward(self, call: Call) -> bool:
        if asks(call, ProduceRequest):
            return self._produce_order.may_follow(call.request)
        call.check_age()
        route = call.api.route
        return route is None or not route.only_with_lease or self._leaders.holds_lease

    async def _refuse(self, call: Call) -> Response:
        """The answer to a request that was lost, whose batches `ProduceOrder.lost` has counted: they count once."""
        client = replace(call.client, refused=RefusedBatches())
        return await (await self._refused(replace(call, context=replace(call.context, client=client)))).result()

    async def _refused(self, call: Call) -> Reply:
        if _is_unanswered(call):
            raise ClosesConnection("a batch with acks=0 cannot be forwarded")
        context = replace(call.context, cluster=self._forwarding.elsewhere)
        return await call.api.handle(replace(call, context=context)).prepared()

    # Links

    def _link(self, member: Member, context: RequestContext) -> PeerLink:
        link = self._links.get(member.incarnation)
        if link is None:
            principal = None if context.policy is ALL_ALLOWED else str(context.principal)
            link = self._forwarding.peers.open(member, self._client.address, self._lost, principal)
            self._links[member.incarnation] = link
        return link

    def _lost(self, link: PeerLink) -> None:
        self._links.pop(link.member.incarnation, None)
        if link.unanswered:  # batches with acks=0 may be lost: a leader closes the connection then, too, if it can
            self._client.close("a peer was lost")


def _is_unanswered(call: Call) -> bool:
    return asks(call, ProduceRequest) and call.request.acks == 0


async def _answer(future: asyncio.Future[Response], work: Coroutine[Any, Any, Response]) -> None:
    """The request fails with whatever the work raises: otherwise it would never be answered."""
    try:
        response = await work
    except Exception as error:
        if not future.done():
            future.set_exception(error)
    else:
        if not future.done():
            future.set_result(response)


def _log_undecodable(link: PeerLink, error: ValueError) -> None:
    log.error("cannot decode a response of another gateway", node_id=link.member.node_id, error=str(error))
