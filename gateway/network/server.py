"""The Kafka listeners: accept connections within their limit, close idle ones."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import structlog

from gateway.background import TaskGroup
from gateway.config.clusters import cluster_hosts
from gateway.config.gateway_config import FORWARDING_LISTENER, Config, ForwardingSection
from gateway.config.listeners import AddressSection, NamedListenerSection
from gateway.dispatch import Dispatcher, ServedCluster
from gateway.fan_out import sliced
from gateway.forwarding.peer_security import PeerNames
from gateway.login.audit import LoginAudit
from gateway.login.certificate_names import CertificateNames
from gateway.login.service import LoginService
from gateway.network.arrivals import Arrivals
from gateway.network.connection import READ_BUFFER_BYTES, KafkaConnection
from gateway.network.request_budget import RequestBudget
from gateway.network.turns import Turns
from gateway.observability.metrics import Metrics, Tally
from gateway.requests.cluster import Cluster, Unread
from gateway.requests.context import Listener
from gateway.security.address_quotas import AddressQuotas
from gateway.transport.certificates import Certificates
from gateway.transport.proxy import AwaitedProxyHeader
from gateway.transport.tls import TlsConnection

SWEEP_S = 10.0
WATCH_S = 1.0
"""While memory is short, requests that are being received are looked at so often."""
REGULATED_AT_ONCE = 100
"""Connections that are paused in one turn of the event loop: each takes microseconds."""
BACKLOG = 4_096
CODEC_THREADS = 2
"""The threads share one interpreter: more threads would not be faster."""

log = structlog.get_logger()


class KafkaServer:
    """Owns the listening sockets and their connections."""

    def __init__(
        self,
        config: Config,
        dispatcher: Dispatcher,
        metrics: Metrics,
        logins: LoginService | None = None,
        address_quotas: AddressQuotas | None = None,
    ) -> None:
        """`logins` is set if a listener has SASL. `address_quotas` are for clients, not for other gateways."""
        self.dispatcher = dispatcher
        self.limits = config.limits
        self.metrics = metrics
        self.requests = RequestBudget(
            config.limits.requests_budget_bytes, metrics.request_bytes, self._regulate_all
        )
        self.peer_requests = RequestBudget(
            config.limits.requests_budget_bytes, metrics.forwarded_request_bytes, self._regulate_all
        )
        self.gateway_requests = RequestBudget(config.limits.requests_budget_bytes, Tally(), self._regulate_all)
        self._shares: dict[int, RequestBudget] = {}
        self.turns = Turns(by_cluster=dispatcher.entrance is not None)
        self.read_buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self.threads = ThreadPoolExecutor(CODEC_THREADS, "codec")
        self.audit = LoginAudit(metrics)
        self.arrivals = Arrivals(config.limits, metrics, self.turns, address_quotas)
        self._peer_arrivals = Arrivals(config.limits, metrics, self.turns)
        self._tls_read_buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self._logins = logins
        self._certificates: list[Certificates] = []
        self._kafka = config.kafka
        self._forwarding = config.fleet.forwarding
        self._unread: dict[KafkaConnection, tuple[Unread, int]] = {}
        """The unread answers of each connection: the counters of its cluster, and its number of bytes."""
        self._unread_bytes = 0
        self._given_up: set[KafkaConnection] = set()
        """They will be closed in the next turn of the event loop."""
        self._connections: set[KafkaConnection] = set()
        self._exhausted = asyncio.Event()
        """Memory for requests was exhausted since requests were looked at."""
        self._to_regulate: list[KafkaConnection] = []
        """They do not know yet that memory is exhausted."""
        self._regulating: asyncio.Handle | None = None
        self._of_peers = 0
        self._listening: list[asyncio.Server] = []
        self._is_stopping = False
        self._tasks = TaskGroup()

    async def bind(self) -> dict[str, int]:
        """Bind the ports and return them by listener. Clients cannot connect before `start`.

        Raises OSError, or InvalidCertificate.
        """
        _raise_file_limit()
        ports = {each.name: await self._bind(each, self._entrance(each)) for each in self._kafka.all_listeners}
        if self._forwarding is not None:
            ports[FORWARDING_LISTENER] = await self._bind(self._forwarding, self._peer_entrance(self._forwarding))
        return ports

    def _entrance(self, settings: NamedListenerSection) -> Callable[[], asyncio.BufferedProtocol]:
        """Return the factory of new connections of a listener. Raises InvalidCertificate."""
        hosts = cluster_hosts(self._kafka.clusters) if settings.may_choose_by_host else {}
        listener = Listener(settings.name, settings.single_address, settings.cluster, settings.protocol, hosts)
        proxies = settings.trusted_proxies if settings.proxy_protocol else None
        logins = None
        if settings.speaks_sasl:
            assert self._logins is not None
            logins = self._logins.of(settings.mechanisms)
        names = CertificateNames(settings) if settings.speaks_tls else None
        if settings.tls is None:
            return partial(KafkaConnection, self, listener, proxies=proxies, tls_at_proxy=names, logins=logins)
        certificates = Certificates(settings.name, settings.tls, settings.client_auth, self.metrics)
        self._certificates.append(certificates)
        carry = partial(_carried, names, partial(KafkaConnection, self, listener, logins=logins, is_new=False))
        return lambda: TlsConnection(
            certificates.current, self._tls_read_buffer, carry, self.arrivals,
            timeout_s=self.limits.login_timeout_ms / 1000,
            proxy_header=None if proxies is None else AwaitedProxyHeader(proxies),
        )  # fmt: skip

    def _peer_entrance(self, settings: ForwardingSection) -> Callable[[], asyncio.BufferedProtocol]:
        """As `_entrance`, for connections of other gateways. Their own PROXY header names the forwarded client."""
        make = partial(
            KafkaConnection, self, Listener(FORWARDING_LISTENER), proxies=settings.trusted_peers, answers_in_order=False
        )
        if settings.tls is None:
            return make
        certificates = Certificates(FORWARDING_LISTENER, settings.tls, "required", self.metrics)
        self._certificates.append(certificates)
        names = PeerNames(settings.peer_names)
        return lambda: TlsConnection(
            certificates.current, self._tls_read_buffer,
            lambda tls: make() if names.is_of_peer(tls.certificate) else None, self._peer_arrivals,
            timeout_s=self.limits.login_timeout_ms / 1000,
        )  # fmt: skip

    async def _bind(self, listener: AddressSection, connection: Callable[[], asyncio.BufferedProtocol]) -> int:
        server = await asyncio.get_running_loop().create_server(
            connection, listener.host, listener.port, backlog=BACKLOG, start_serving=False
        )
        self._listening.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Listen."""
        for server in self._listening:
            await server.start_serving()
        self._tasks.keep_running("idle connections", self._sweep)
        self._tasks.keep_running("slow requests", self._watch_requests)
        for certificates in self._certificates:
            self._tasks.keep_running("certificates", certificates.keep_fresh)

    async def stop(self) -> None:
        """Accept no more connections and requests, give those in flight a moment to be answered, then close."""
        self._is_stopping = True
        for server in self._listening:
            server.close()
        await self._tasks.close()
        for connection in tuple(self._connections):
            connection.finish("shutdown")
        deadline = asyncio.get_running_loop().time() + self.limits.stop_drain_ms / 1000
        while self._connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.05)  # until the last answers are sent, too
        for connection in tuple(self._connections):
            connection.close("shutdown")
        await asyncio.sleep(0)

    def requests_of(self, served: ServedCluster) -> RequestBudget:
        cluster = served.cluster
        share = self._shares.get(id(cluster))
        if share is None:
            budget_bytes = cluster.config.limits.requests_budget_bytes
            share = RequestBudget(budget_bytes, Tally(), self._regulate_all, self.requests)
            self._shares[id(cluster)] = share
        return share

    def opened(self, connection: KafkaConnection) -> bool:
        """False if there are too many connections: the connection then closes itself."""
        self.metrics.connections_total.inc()
        self._connections.add(connection)
        self.metrics.connections.set(len(self._connections))
        if self._is_stopping:  # its TLS handshake had begun before
            connection.finish("shutdown")
        if connection.listener.name == FORWARDING_LISTENER:  # counted on the gateway that its client connected to
            self._of_peers += 1
            return True
        return len(self._connections) - self._of_peers <= self.limits.max_connections

    def unread_changed(self, connection: KafkaConnection, size_bytes: int) -> None:
        """Set the size of a connection's answers that its client has not read. Above the budget, the connections that
        have held answers for the longest time are closed."""
        if connection in self._given_up:  # it would count again, and another one would be closed for it
            return
        unread, before = self._unread.get(connection) or (connection.cluster.unread, 0)
        self._count_unread(unread, size_bytes - before)
        if size_bytes:
            self._unread[connection] = unread, size_bytes  # keeps its position in the dict
        else:
            self._unread.pop(connection, None)
        while self._unread_bytes > self.limits.unread_budget_bytes:
            self._give_up(next(iter(self._unread)))
        while unread.of_connections_bytes > unread.budget_bytes:
            self._give_up(next(each for each, (of, _) in self._unread.items() if of is unread))

    def _give_up(self, connection: KafkaConnection) -> None:
        unread, size_bytes = self._unread.pop(connection)
        self._count_unread(unread, -size_bytes)
        if not connection.unread_bytes:  # it has read them since they were counted
            return
        self._given_up.add(connection)
        asyncio.get_running_loop().call_soon(connection.abort, "responses are not read")

    def _count_unread(self, unread: Unread, size_bytes: int) -> None:
        self._unread_bytes += size_bytes
        unread.of_connections_bytes += size_bytes
        unread.size_bytes += size_bytes

    def end_connections(self, cluster: Cluster) -> None:
        """Close the connections of a cluster that is being closed. A new connection opens the cluster again."""
        for connection in tuple(self._connections):
            if connection.cluster is cluster:
                connection.close("cluster closed")
        self._shares.pop(id(cluster), None)  # another cluster may get the same id

    def _regulate_all(self) -> None:
        """Memory is exhausted. While very many connections wait already, those that go on exhaust it again and again.

        What is left for later turns of the event loop reads SHORT_READ_BYTES at most before it regulates itself.
        """
        self._exhausted.set()
        self._to_regulate = [*self._connections]
        if self._regulating is None:
            self._regulate_some()

    def _regulate_some(self) -> None:
        self._regulating = None
        left, regulated = self._to_regulate, 0
        while left and regulated < REGULATED_AT_ONCE:
            connection = left.pop()
            if connection.is_reading:
                connection.regulate_reading()
                regulated += 1
        if left:
            self._regulating = asyncio.get_running_loop().call_soon(self._regulate_some)

    def closed(self, connection: KafkaConnection) -> None:
        self._connections.discard(connection)
        self._given_up.discard(connection)
        self._of_peers -= connection.listener.name == FORWARDING_LISTENER
        self.metrics.connections.set(len(self._connections))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            now_s = asyncio.get_running_loop().time()
            async for connection in sliced(tuple(self._connections)):
                if connection.last_activity < now_s - self.limits.connection_idle_ms / 1000:
                    connection.close("idle")
                else:
                    connection.look_for_end()
                    self._count_silent(connection, now_s)

    def _count_silent(self, connection: KafkaConnection, now_s: float) -> None:
        """Count few unread answers, too, of a client that sends nothing more: there may be thousands of them."""
        is_counted = connection.last_activity < now_s - SWEEP_S or not connection.accepts_answers
        size_bytes = connection.unread_bytes if is_counted else 0
        if size_bytes or connection in self._unread:
            self.unread_changed(connection, size_bytes)

    async def _watch_requests(self) -> None:
        """While memory is short, give up requests that wait for their own client, and others wait for them."""
        while True:
            if not self._is_short:
                with suppress(TimeoutError):
                    async with asyncio.timeout(SWEEP_S):
                        await self._exhausted.wait()
            self._exhausted.clear()
            await self._give_up_slow()
            await asyncio.sleep(WATCH_S)

    @property
    def _is_short(self) -> bool:
        budgets = (self.requests, self.peer_requests, self.gateway_requests, *self._shares.values())
        return any(each.is_short for each in budgets)

    async def _give_up_slow(self) -> None:
        """Those with the most memory first. If memory is not short, this is how far each request has come."""
        now_s = asyncio.get_running_loop().time()
        slow: list[tuple[int, KafkaConnection]] = []
        async for connection in sliced(tuple(self._connections)):
            held_bytes = connection.holds_for_client(now_s)
            if held_bytes:
                slow.append((held_bytes, connection))
        if not self._is_short:
            return
        slow.sort(key=lambda each: each[0], reverse=True)
        for _, connection in slow:
            if connection.lacks_memory and connection.holds_for_client(now_s):
                connection.abort("requests wait for their client while memory is short")
                await asyncio.sleep(0)  # so that the next one knows what memory there is


def _carried(
    names: CertificateNames | None, make: Callable[[], KafkaConnection], tls: TlsConnection
) -> KafkaConnection | None:
    """Return the connection of a TLS client; None if its certificate maps to no principal."""
    assert names is not None
    principal = names.principal(tls.certificate)
    if principal is None:
        return None
    connection = make()
    connection.become(principal, tls.server_name, tls.address)
    return connection


def _raise_file_limit() -> None:
    """Each connection needs a file descriptor: raise the limit to all that the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
