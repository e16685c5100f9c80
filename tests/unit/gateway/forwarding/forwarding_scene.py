"""A client at a single address, with a fake fleet, and fake connections to the other gateways."""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from coordinator.fleet.leadership import LeadershipState
from coordinator.fleet.messages import Member
from coordinator.group.messages import JoinResponse, RefusedError
from coordinator.transaction.messages import EndTxnResponse
from gateway.config.limits import Limits
from gateway.coordination.transactions.newest_connections import NewestConnections
from gateway.dispatch import Dispatcher, RequestHandler
from gateway.fetching.fetch_session import FetchSessions
from gateway.fetching.fetch_waits import FetchWaits
from gateway.fetching.remembered_partitions import RememberedPartitions
from gateway.forwarding.fleet_leaders import FleetLeaders
from gateway.forwarding.forwarder import Forwarding
from gateway.forwarding.peers import Encode, OnAnswer, Peers
from gateway.handlers.table import APIS
from gateway.observability.metrics import Metrics
from gateway.requests.call import Call
from gateway.requests.cluster import Cluster, Unread
from gateway.requests.context import Client, Listener
from gateway.requests.reply import Response
from gateway.security.authorizer import Authorizer
from gateway.topics.topic import Topic
from protocol.kafka.acl import AclOperation, ResourceType
from protocol.kafka.codec import decode_response, encode_request, encode_response
from protocol.kafka.errors import ErrorCode
from tests.unit.gateway.requests.test_routes import OTHERS

WAIT_S = 10
LISTENER = Listener("single", single_address=True)
_ID = struct.Struct(">i")


class FakeLink:
    def __init__(self, member: Member, on_lost: Callable[[Any], None]) -> None:
        self.member = member
        self.unanswered = False
        self.room = asyncio.Event()
        self.room.set()
        self.lost = False
        self.sent: list[bytes] = []
        """Frames with their lengths."""
        self._on_lost = on_lost
        self._waiting: dict[int, OnAnswer] = {}

    @property
    def writable(self) -> bool:
        return self.room.is_set() and not self.lost

    async def ready(self) -> bool:
        await self.room.wait()
        return not self.lost

    async def flushed(self) -> None:
        await self.room.wait()

    def send(self, encode: Encode, on_answer: OnAnswer) -> None:
        self._waiting[self._write(encode)] = on_answer

    def send_unanswered(self, encode: Encode) -> bool:
        self.unanswered = True
        self._write(encode)
        return True

    def _write(self, encode: Encode) -> int:
        number = 1_000 + len(self.sent)
        self.sent.append(b"".join(encode(number))[4:])
        return number

    def answer(self, position: int, version: int, response: Any) -> bytes:
        """The response to the frame sent at `position`, after its correlation id."""
        frame = bytearray(self.sent[position])
        api_key, _, number = struct.unpack_from(">hhi", frame)
        answered = bytearray(b"".join(encode_response(APIS[api_key].response, version, number, response))[4:])
        self._waiting.pop(number)(answered)
        return bytes(answered[_ID.size :])

    def lose(self) -> None:
        self.lost = True
        waiting, self._waiting = self._waiting, {}
        for on_answer in waiting.values():
            on_answer(None)
        self._on_lost(self)

    def close(self) -> None:
        self.lose()


class FakeFleet:
    """Node 0 is this gateway. `leaders` maps partition numbers to leaders; changes are not announced."""

    def __init__(self) -> None:
        self.epoch = 1
        self.incarnation = ""
        self.state = LeadershipState.LEADING
        self.leaders: dict[int, Member | None] = {1: OTHERS[0], 2: OTHERS[1]}

    @property
    def members(self) -> list[Member]:
        return OTHERS

    def leader(self, _topic: str, partition: int) -> Member | None:
        return self.leaders.get(partition)

    def leads(self, _topic: str, _partition: int) -> bool:
        return False


class FakeRights:
    """An authorizer that allows everything except operations on some topics."""

    def __init__(self) -> None:
        self._version = 1
        self._denied: set[str] = set()

    def deny(self, *topics: str) -> None:
        self._denied.update(topics)
        self._version += 1

    def version(self) -> int:
        return self._version

    def allows(self, _requester: Any, _operation: AclOperation, _resource_type: ResourceType, name: str) -> bool:
        return name not in self._denied

    def allows_any(self, _requester: Any, _operation: AclOperation, _resource_type: ResourceType) -> bool:
        return True


class Scene:
    """`links` are by node id, in order of opening; a lost one is replaced."""

    def __init__(self, rights: FakeRights | None = None) -> None:
        self.fleet = FakeFleet()
        self.links: dict[int, FakeLink] = {}
        self.opened: list[FakeLink] = []
        """All links, in order of opening."""
        self.unread = Unread()
        self.relayed = RememberedPartitions()
        self.names: dict[Any, str] = {}
        self.coordinators: dict[str, int] = {}
        """Coordinators of groups and of transactional ids."""
        self.closed: list[str] = []
        self.principals: list[str | None] = []
        """Of the client, as the links name it."""
        self.blocked = False
        """New connections are not open yet."""
        self.knows_topics = True
        topics = SimpleNamespace(cached=lambda name: _topic(name) if self.knows_topics else None, get=_looked_up,
                                 cached_name=self.names.get)  # fmt: skip
        cluster = SimpleNamespace(
            config=SimpleNamespace(limits=Limits()), metrics=Metrics(), fleet=self.fleet, node_id=0, topics=topics,
            unread=self.unread, fetch_sessions=FetchSessions(10), fetch_waits=FetchWaits(),
            relayed_partitions=self.relayed, fetched_tails=RememberedPartitions(),
            logs=SimpleNamespace(get=lambda *_: None),
            groups=SimpleNamespace(
                partition_of=self.coordinators.get, run=_not_coordinator, ask=_not_coordinator_of_group
            ),
            transactions=SimpleNamespace(partition_of=self.coordinators.get, ask=_not_coordinator_of_transactions),
            producer_connections=NewestConnections(),
            offset_connections=NewestConnections(),
        )  # fmt: skip
        peers = SimpleNamespace(open=self._open)
        shared = cast(Cluster, cluster)
        forwarding = Forwarding(cast(Peers, peers), FleetLeaders(shared), shared)
        self._dispatcher = Dispatcher(shared, forwarding, cast(Authorizer | None, rights))
        self.client = Client("192.0.2.7:51000", close=self.closed.append)
        self._context = self._dispatcher.context(self.client, LISTENER)
        self.forwarder = self._dispatcher.handler(self._context)

    def _open(
        self, member: Member, address: str, on_lost: Callable[[Any], None], principal: str | None
    ) -> FakeLink:
        assert address == self.client.address
        self.principals.append(principal)
        link = self.links[member.node_id] = FakeLink(member, on_lost)
        self.opened.append(link)
        if self.blocked:
            link.room.clear()
        return link

    def connect(self) -> RequestHandler:
        """Another connection of the client."""
        return self._dispatcher.handler(self._context)

    def ask(self, api_key: int, version: int, request: Any, correlation_id: int = 7, *, share: bool = False) -> Asked:
        """As a connection does; or for a part of a request, which is encoded again, like its response."""
        call = self.begin(api_key, version, request, correlation_id)
        assert call.frame is not None
        frame = bytes(call.frame)
        if share:
            call = call.asking(call.request)
        return Asked(self._dispatcher, self.forwarder, call, frame)

    def begin(self, api_key: int, version: int, request: Any, correlation_id: int = 7) -> Call:
        encoded = encode_request(APIS[api_key].request, version, correlation_id, "c", request)
        return self._dispatcher.begin(bytearray(b"".join(encoded)[4:]), self._context)

    @property
    def cluster(self) -> Cluster:
        return self._context.cluster


def _topic(name: str) -> Topic:
    return Topic(name, name, uuid.UUID(int=1), 10, True, {}, 0)


async def _looked_up(name: str) -> Topic:
    """Handlers that needed long for the batches of one request look up the topic when they continue."""
    return _topic(name)


def _not_coordinator(_group_id: str, _call: Any) -> Any:
    raise RefusedError(ErrorCode.NOT_COORDINATOR)


def _not_coordinator_of_group(_group_id: str, _call: Any, to_response: Callable[[Any], Any]) -> asyncio.Future[Any]:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    answer.set_result(to_response(JoinResponse(ErrorCode.NOT_COORDINATOR, "")))
    return answer


def _not_coordinator_of_transactions(_name: str, _call: Any, to_response: Callable[[Any], Any]) -> asyncio.Future[Any]:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    answer.set_result(to_response(EndTxnResponse(ErrorCode.NOT_COORDINATOR)))
    return answer


class Asked:
    """One request; it runs immediately, up to its first wait."""

    def __init__(self, dispatcher: Dispatcher, forwarder: RequestHandler, call: Call, frame: bytes) -> None:
        self.frame = frame
        self._dispatcher = dispatcher
        self._call = call
        self.reply = forwarder.handle(call)
        preparation = self.reply.preparation
        self._task = None if preparation is None else asyncio.ensure_future(self.reply.prepared())

    @property
    def serial(self) -> bool:
        """Later requests of the connection wait for it."""
        return self._task is not None and not self._task.done()

    async def response(self) -> Response:
        async with asyncio.timeout(WAIT_S):
            reply = self.reply if self._task is None else await self._task
            return await reply.result()

    async def answer(self) -> bytes:
        """The frame that the client gets, with its length."""
        return b"".join(self._dispatcher.encode(self._call, await self.response()))[4:]

    async def decoded(self) -> Any:
        return decode_response(self._call.api.response, self._call.version, memoryview(await self.answer()))
