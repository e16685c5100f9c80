"""A gateway whose sockets, logins, pipelines and codecs are real. Its handlers answer whatever comes to mind."""

from __future__ import annotations

import asyncio
import math
import socket
from collections import Counter
from functools import cache
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from gateway.config.gateway_config import Config
from gateway.config.limits import MIB, Limits
from gateway.config.listeners import LOOPBACK
from gateway.dispatch import Dispatcher, ServedCluster
from gateway.handlers.place import Place
from gateway.login.audit import LoginAudit
from gateway.login.exchanges import Mechanisms
from gateway.login.failed_logins import FailedLogins
from gateway.login.session import Logins
from gateway.network.connection import KafkaConnection
from gateway.network.server import KafkaServer, _carried
from gateway.observability.metrics import Metrics
from gateway.requests.call import Call, ClosesConnection
from gateway.requests.cluster import Cluster, ClusterRefused, Unread, Usage
from gateway.requests.context import ANONYMOUS, Listener, Principal, RequestContext
from gateway.requests.policy import RepeatedCharges
from gateway.requests.reply import Reply, Response
from gateway.transport.proxy import AwaitedProxyHeader
from gateway.transport.tls import TlsConnection
from protocol.kafka.api_key import ApiKey
from protocol.kafka.buffers import RecordChunks
from protocol.kafka.codec import encode_response
from protocol.kafka.messages.groups import FindCoordinatorResponse, JoinGroupResponse
from protocol.kafka.messages.message import Message
from protocol.kafka.messages.records import FetchResponse, ProduceResponse
from protocol.kafka.messages.topics import MetadataResponse
from protocol.proxy.header import Endpoint
from tests.unit.gateway.login.login_scene import USER, USERS
from tests.unit.gateway.network.whole.forms import Form
from tests.unit.gateway.network.whole.logins import SCRAM, WholeTokens
from tests.unit.gateway.network.whole.sockets import PlainEnd, TlsEnd

PLAINTEXT, SASL = Listener("plain"), Listener("sasl", protocol="SASL_PLAINTEXT")
SOCKET_BYTES = 16 * 1024
PROXY = "127.0.0.1"
MANY_ROWS = 2_001
"""Such an answer is encoded in a thread."""
LOGIN_APIS = frozenset({ApiKey.ApiVersions, ApiKey.SaslHandshake, ApiKey.SaslAuthenticate})
ACKS_AT = 14
"""The lower byte, in a Produce request of a client "c" without a transactional id."""

Request = tuple[str, int]
"""The address of its client, and its correlation id."""


@cache
def answer_of(key: ApiKey, size: int) -> Message:
    if key is ApiKey.Produce:
        return ProduceResponse()
    if key is ApiKey.Fetch:
        records = RecordChunks((bytes(size),), size)
        data = FetchResponse.FetchableTopicResponse.PartitionData(partition_index=0, records=records)
        return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=[data])])
    if key is ApiKey.Metadata:
        broker = MetadataResponse.MetadataResponseBroker(node_id=1, host="h", port=1)
        return MetadataResponse(brokers=[broker] * (MANY_ROWS if size else 1))
    return FindCoordinatorResponse() if key is ApiKey.FindCoordinator else JoinGroupResponse()


class Charges:
    """Quotas that are exceeded now and then."""

    is_needed = True

    def __init__(self, random: Random) -> None:
        self._random = random
        self.charged: Counter[Request] = Counter()

    def handle(self, call: Call, handle: Any) -> Reply:
        return cast(Reply, handle(call))

    def charge(self, call: Call, response: Response) -> tuple[Response, int]:
        self.charged[call.client.address, call.correlation_id] += 1
        return response, self._random.choice([1, 20, 3_000]) if self._random.random() < 0.1 else 0

    def bound(self, call: Call) -> None:
        """No fetch is limited."""

    def repeated(self, call: Call) -> RepeatedCharges:
        raise NotImplementedError("nothing is repeated")


class WatchedLogins(LoginAudit):
    """It knows when the clients logged in last."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__(metrics)
        self.logged_in_s: dict[str, float] = {}

    def logged_in(self, context: RequestContext, mechanism: str, name: str, *, again: bool = False) -> None:
        self.logged_in_s[context.client.address] = asyncio.get_running_loop().time()


class WatchedConnection(KafkaConnection):
    """It tells why it has ended."""

    ended: str | None = None
    aborted = False

    def end(self, reason: str, **facts: Any) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self.ended = reason
        super().end(reason, **facts)

    def abort(self, reason: str) -> None:
        self.aborted = True
        super().abort(reason)

    def close(self, reason: str, **facts: Any) -> None:
        self.aborted = self.aborted or (self._transport is not None and self._transport.is_closing())
        super().close(reason, **facts)


class Handler:
    """The requests of one connection. `begun` are those that have come here, in order."""

    def __init__(self, gateway: WholeGateway) -> None:
        self._gateway, self._random = gateway, gateway.random
        self._loop = asyncio.get_running_loop()

    def _begin(self, context: RequestContext, correlation_id: int, *, waits: bool) -> None:
        is_login = context.listener.name == SASL.name
        user = self._gateway.users.get(context.client.address, USER)
        assert not is_login or context.principal == Principal(name=user), "served without a login"
        request = context.client.address, correlation_id
        assert request not in self._gateway.begun, "served twice"
        self._gateway.begun[request] = self._loop.time()
        gateway = self._gateway
        if is_login and not waits:  # the others were let in earlier
            late_s = self._loop.time() - gateway.expires_s(context.client.address)
            assert late_s <= 0.001, "served after the session has expired"

    def handle_known(self, frame: bytearray, context: RequestContext, place: Place) -> bool:
        if frame[:2] != bytes([0, ApiKey.Produce]) or self._random.random() < 0.7:
            return False
        correlation_id = int.from_bytes(frame[4:8], "big")
        self._begin(context, correlation_id, waits=bool(cast(Any, place)._answers.places))
        self._gateway.known.add((context.client.address, correlation_id))
        version = int.from_bytes(frame[2:4], "big")
        acks = frame[ACKS_AT]
        buffers = encode_response(ProduceResponse, version, correlation_id, ProduceResponse()) if acks else []
        drawn = self._random.random()
        if drawn < 0.4:
            place.answer_at_once(buffers)
        elif drawn < 0.7:
            self._loop.call_later(self._random.uniform(0, 0.1), place.answer, *buffers)
        else:
            self._loop.call_later(self._random.uniform(0, 0.1), place.answer_now, buffers)
        return True

    def handle(self, call: Call) -> Reply:
        connection = self._gateway.connections[call.client.address]
        waits = len(connection._pipeline._answers.places) > 1 or len(call.frame or b"") > 64 * 1024
        self._begin(call.context, call.correlation_id, waits=waits)
        if call.api.key in LOGIN_APIS:
            return call.api.handle(call)
        if self._random.random() < 0.01:
            raise ClosesConnection("closes")
        kind = self._random.random()
        if call.api.key in {ApiKey.Fetch, ApiKey.JoinGroup} or kind < 0.3:
            return self._later(call)
        if call.api.key is ApiKey.Metadata or kind < 0.6:
            return Reply.after(self._prepare(call))
        return Reply(self._response(call))

    def _response(self, call: Call) -> Response:
        key, request = call.api.key, cast(Any, call.request)
        if key is ApiKey.Produce and request.acks == 0:
            return None
        sizes = {ApiKey.Fetch: [0, 1_000, 100_000, 600_000], ApiKey.Metadata: [0] * 20 + [1]}
        return answer_of(key, self._random.choice(sizes.get(key, [0])))

    async def _prepare(self, call: Call) -> Reply:
        await asyncio.sleep(self._random.choice([0, 0.001, 0.05, 0.5]))
        if self._random.random() < 0.01:
            raise ClosesConnection("closes")
        return self._later(call) if self._random.random() < 0.3 else Reply(self._response(call))

    def _later(self, call: Call) -> Reply:
        waits_s = [0, 1, 8] if call.api.key is ApiKey.JoinGroup else [0, 0.001, 0.1, 0.5]
        future: asyncio.Future[Response] = self._loop.create_future()
        timer = self._loop.call_later(self._random.choice(waits_s), self._end, future, call)
        future.add_done_callback(lambda _: timer.cancel())
        self._gateway.futures.append(future)
        reply = Reply.later(future)
        reply.needs_request = call.api.key is not ApiKey.JoinGroup
        return reply

    def _end(self, future: asyncio.Future[Response], call: Call) -> None:
        drawn = self._random.random()
        if future.done():
            return
        if drawn < 0.01:
            future.set_exception(ClosesConnection("closes"))
        elif drawn < 0.02:
            future.cancel()
        else:
            future.set_result(self._response(call))

    def expect(self, call: Call) -> None:
        """It will come."""

    def close(self) -> None:
        self._gateway.open_handlers -= 1


class WholeDispatcher(Dispatcher):
    gateway: WholeGateway

    def handler(self, context: RequestContext, served: ServedCluster | None = None) -> Any:
        self.gateway.open_handlers += 1
        return Handler(self.gateway)


class SomeCluster:
    """The entrance to two clusters. It takes a while, and some are refused."""

    def __init__(self, gateway: WholeGateway, random: Random, served: list[ServedCluster]) -> None:
        self._random, self._served = random, served

    async def enter(self, listener: Listener, principal: Principal, asked: str | None, **_: Any) -> ServedCluster:
        await asyncio.sleep(self._random.choice([0, 0.01, 0.5]))
        if self._random.random() < 0.03:
            raise ClusterRefused("cluster is not served")
        return self._served[len(principal.name) % 2 if principal.has_logged_in else self._random.randrange(2)]

    async def home(self, listener: Listener, user: str) -> ServedCluster | None:
        return None


class Anyone:
    """Certificates are not looked at."""

    def principal(self, certificate: bytes | None) -> Principal:
        return ANONYMOUS


class WholeGateway:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.begun: dict[Request, float] = {}
        """When each request came to its handler."""
        self.known: set[Request] = set()
        self.open_handlers = 0
        self.futures: list[asyncio.Future[Response]] = []
        self.connections: dict[str, WatchedConnection] = {}
        self._ports = count(1)
        self.limits = self._some_limits()
        self.metrics = Metrics()
        self.charges = Charges(random)
        self.served = [self._cluster() for _ in range(3)]
        self.max_reauth_ms = random.choice([0, 0, 700, 5_000])
        self.tokens = WholeTokens(random)
        self.users: dict[str, str] = {}
        """By address: who logs in there. Others are those of the configuration."""
        self.mechanisms = Mechanisms(USERS, self.tokens)
        offered = ("PLAIN", SCRAM, "OAUTHBEARER")
        self.audit = WatchedLogins(self.metrics)
        self._logins = Logins(self.mechanisms, offered, self.max_reauth_ms, self.audit, FailedLogins())
        self.dispatcher = self._dispatcher()
        config = SimpleNamespace(limits=self.limits, kafka=None, fleet=SimpleNamespace(forwarding=None))
        self.server = KafkaServer(cast(Config, config), self.dispatcher, self.metrics)
        self._passed_s = 0.0
        self.server.turns.now_s = self._now_s
        self.stopping: asyncio.Task[None] | None = None

    def _some_limits(self) -> Limits:
        draw = self.random.choice
        return Limits(
            max_connections=draw([3, 100]), max_unauthenticated_per_address=draw([1, 100]),
            requests_budget_bytes=draw([MIB, 64 * MIB]), unread_budget_bytes=draw([20 * MIB, 64 * MIB]),
            max_in_flight_requests=draw([1, 3, 64]), connection_idle_ms=draw([25_000, 600_000]),
            stop_drain_ms=draw([0, 100, 100_000]), max_request_bytes=2 * MIB,
        )  # fmt: skip

    def _cluster(self) -> ServedCluster:
        fleet = SimpleNamespace(epoch=0, transaction_version=0, incarnation="")
        pulsar = SimpleNamespace(full_namespace="public/default")
        config = SimpleNamespace(limits=self.limits, pulsar=pulsar)
        parts = SimpleNamespace(config=config, metrics=self.metrics, fleet=fleet, unread=Unread(), usage=Usage())
        return ServedCluster(cast(Cluster, parts), meter=cast(Any, self.charges))

    def _dispatcher(self) -> WholeDispatcher:
        own, *others = self.served
        dispatcher = WholeDispatcher(own.cluster, meter=own.meter)
        dispatcher.gateway = self
        if self.random.random() < 0.4:
            dispatcher.entrance = SomeCluster(self, self.random, others)
        return dispatcher

    def _now_s(self) -> float:
        self._passed_s += self.random.choice([0, 0, 0.0001, 0.003])
        return self._passed_s

    def connect(self, *, logs_in: bool, address: str, form: Form) -> tuple[PlainEnd, str]:
        """Returns the client's end, and the address under which its connection is known."""
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setblocking(False)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        listener, logins = (SASL, self._logins) if logs_in else (PLAINTEXT, None)
        port = next(self._ports)
        peer, header = (address, port), b""
        if form.header is not None:
            peer = (PROXY if form.is_trusted else "198.51.100.1", port)
            header = form.header(Endpoint(address, port))
        known = f"{address}:{port}" if form.names_client or form.header is None else f"{peer[0]}:{port}"
        proxies = None if form.header is None else LOOPBACK

        def make(**more: Any) -> WatchedConnection:
            connection = WatchedConnection(cast(Any, self.server), listener, logins=logins, **more)
            self.connections[known] = connection
            return connection

        accepted: asyncio.BufferedProtocol
        end: PlainEnd
        if form.tls is None:
            accepted, end = make(proxies=proxies), PlainEnd(ours, header)
        else:
            accepted = TlsConnection(
                form.tls.accepts, self.server._tls_read_buffer,
                lambda tls: _carried(cast(Any, Anyone()), lambda: make(is_new=False), tls), self.server.arrivals,
                timeout_s=self.limits.login_timeout_ms / 1000,
                proxy_header=None if proxies is None else AwaitedProxyHeader(proxies),
            )  # fmt: skip
            end = TlsEnd(ours, form.tls, self.random, header)
        loop = cast(Any, asyncio.get_running_loop())
        loop._make_socket_transport(theirs, accepted, extra={"peername": peer})
        return end, known

    def expires_s(self, address: str) -> float:
        """When the session of the client has to end: at once if its token has expired while its cluster opened."""
        logged_in_s = self.audit.logged_in_s[address]
        of_session_s = logged_in_s + (self.max_reauth_ms / 1_000 or math.inf)
        return max(logged_in_s, min(of_session_s, self.tokens.expires_s.get(address, math.inf)))

    def may_expire(self, address: str) -> bool:
        return self.max_reauth_ms > 0 or address in self.tokens.expires_s

    def check_lifetime(self, address: str, lifetime_ms: int) -> None:
        """What the client was told when it logged in last."""
        left_s = self.expires_s(address) - self.audit.logged_in_s[address]
        told_s = lifetime_ms / 1_000 or (0.0 if left_s < 0.001 else math.inf)
        assert left_s - 0.002 <= told_s <= left_s + 0.001 or left_s == told_s, "a wrong lifetime"

    def stop(self) -> None:
        self.stopping = self.stopping or asyncio.create_task(self.server.stop())

    async def end(self) -> None:
        """Everyone has left."""
        self.stop()
        assert self.stopping is not None
        await self.stopping
        self.mechanisms.close()
        self.server.threads.shutdown(wait=False)

    def check_nothing_is_left(self) -> None:
        server = self.server
        budgets = [server.requests, server.peer_requests, *server._shares.values()]
        assert [each._held.value for each in budgets] == [0] * len(budgets), "memory of requests"
        assert all(each.decoding.is_empty and not each.decoding._used_bytes for each in budgets)
        assert not any(each._waiting or each._first for each in budgets)
        assert server._unread == {} and server._unread_bytes == 0
        assert [each.cluster.unread.size_bytes for each in self.served] == [0, 0, 0]
        assert [each.cluster.usage.connections for each in self.served] == [0, 0, 0]
        assert not server._connections and self.metrics.connections._value.get() == 0
        assert self.metrics.in_flight.value == 0
        arrivals = server.arrivals
        assert (arrivals._count, arrivals._held_bytes, arrivals._held, arrivals._by_site) == (0, 0, {}, {})
        assert self.open_handlers == 0, "each handler is closed once"
        assert all(each.done() for each in self.futures), "a request goes on without its client"
        assert self.metrics.unexpected_failures.labels("request")._value.get() == 0
        counts = {self.charges.charged[each] for each in self.begun if each not in self.known}
        assert counts <= {1}, "each request is charged once"
