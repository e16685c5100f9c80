"""Connections when there are several clusters: requests wait until it is decided which one they are for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.config.gateway_config import FORWARDING_LISTENER, Config
from gateway.config.limits import MIB, Limits
from gateway.config.listeners import LOOPBACK
from gateway.dispatch import Dispatcher, ServedCluster
from gateway.network.connection import KafkaConnection, Owner
from gateway.network.server import KafkaServer
from gateway.observability.metrics import Metrics
from gateway.requests.cluster import ClusterRefused
from gateway.requests.context import ANONYMOUS, GATEWAY, Listener, Principal
from protocol.proxy.header import Endpoint, encode_gateway_header, encode_proxy_header
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.network.connection_harness import FakeDispatcher, FakeServer, FakeTransport, cluster, frame

OUTSIDE, PEERS = Listener("outside"), Listener(FORWARDING_LISTENER)
SOURCE = Endpoint("192.0.2.7", 51_000)


class FakeEntrance:
    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self.listeners: list[Listener] = []
        self.opened: asyncio.Future[ServedCluster] = asyncio.get_running_loop().create_future()

    async def enter(
        self, listener: Listener, principal: Principal, asked: str | None, *, is_own_user: bool = False
    ) -> ServedCluster:
        self.asked.append(asked)
        self.listeners.append(listener)
        return await asyncio.shield(self.opened)

    async def home(self, listener: Listener, user: str) -> ServedCluster | None:
        return None


class Scene:
    def __init__(self, **limits: int) -> None:
        self.entrance = FakeEntrance()
        self.server = FakeServer()
        self.dispatcher = self.server.dispatcher = FakeDispatcher(self.entrance)
        self.served = ServedCluster(cluster(**limits))

    def connect(self, listener: Listener = OUTSIDE, **options: Any) -> tuple[KafkaConnection, FakeTransport]:
        connection, transport = KafkaConnection(cast(Owner, self.server), listener, **options), FakeTransport()
        connection.connection_made(transport)
        return connection, transport

    def reason(self, name: str) -> float:
        return cast(float, self.server.metrics.connections_closed.labels(name)._value.get())


def feed(connection: KafkaConnection, data: bytes) -> None:
    buffer = connection.get_buffer(-1)
    buffer[: len(data)] = data
    connection.buffer_updated(len(data))


async def test_requests_wait_for_their_cluster_and_keep_their_order() -> None:
    scene = Scene()
    connection, transport = scene.connect()
    feed(connection, frame("n1") + frame("n2"))
    await let_callbacks_run()
    assert scene.dispatcher.begun == [] and not transport.reading
    scene.entrance.opened.set_result(scene.served)
    await let_callbacks_run()
    feed(connection, frame("n3"))
    assert transport.written == b"1;2;3;" and transport.reading
    assert scene.entrance.asked == [None]
    assert connection.cluster is scene.served.cluster
    assert scene.served.cluster.usage.connections == 1
    assert scene.served.cluster.usage.bytes_in == len(frame("n3")) and scene.served.cluster.usage.bytes_out == 6
    connection.connection_lost(None)
    assert scene.served.cluster.usage.connections == 0


async def test_a_cluster_that_is_refused_ends_the_connection() -> None:
    scene = Scene()
    connection, transport = scene.connect()
    feed(connection, frame("n1"))
    scene.entrance.opened.set_exception(ClusterRefused("cluster is not permitted"))
    await let_callbacks_run()
    assert transport.closing and scene.dispatcher.begun == []
    assert scene.reason("cluster is not permitted") == 1
    connection.connection_lost(None)
    assert scene.served.cluster.usage.connections == 0


@pytest.mark.parametrize("listener", [OUTSIDE, PEERS])
async def test_a_cluster_that_is_closed_meanwhile_takes_no_connection(listener: Listener) -> None:
    """Its services have ended. The connection would get errors for ever: only a new one opens the cluster again."""
    scene = Scene()
    connection, transport = scene.connect(listener)
    feed(connection, frame("n1"))
    await let_callbacks_run()
    scene.entrance.opened.set_result(scene.served)
    scene.served.cluster.usage.has_ended = True  # before the connection has its turn
    await let_callbacks_run()
    assert transport.closing and scene.dispatcher.begun == []
    assert scene.reason("cluster closed") == 1
    connection.connection_lost(None)
    assert scene.served.cluster.usage.connections == 0


async def test_a_client_that_goes_before_counts_nowhere() -> None:
    scene = Scene()
    connection, _ = scene.connect()
    feed(connection, frame("n1"))
    await let_callbacks_run()
    connection.connection_lost(None)
    scene.entrance.opened.set_result(scene.served)
    await let_callbacks_run()
    assert scene.dispatcher.begun == [] and scene.served.cluster.usage.connections == 0


async def test_one_cluster_cannot_take_all_connections() -> None:
    scene = Scene(max_connections=1)
    scene.entrance.opened.set_result(scene.served)
    first, second = scene.connect(), scene.connect()
    for connection, _ in (first, second):
        feed(connection, frame("n1"))
        await let_callbacks_run()
    assert not first[1].closing and second[1].closing
    assert scene.reason("too many connections of the cluster") == 1
    for connection, _ in (first, second):
        connection.connection_lost(None)
    assert scene.served.cluster.usage.connections == 0


async def test_another_gateway_names_the_cluster() -> None:
    """Its clients are counted where they came."""
    scene = Scene()
    scene.entrance.opened.set_result(scene.served)
    connection, transport = scene.connect(PEERS, proxies=LOOPBACK, answers_in_order=False)
    feed(connection, encode_gateway_header(SOURCE, "tenant/namespace") + frame("n1"))
    await let_callbacks_run()
    assert scene.entrance.asked == ["tenant/namespace"] and transport.written == b"1;"
    usage = scene.served.cluster.usage
    assert connection.cluster is scene.served.cluster
    assert usage.connections == usage.bytes_in == usage.bytes_out == 0


async def test_no_client_names_the_cluster_by_a_header() -> None:
    scene = Scene()
    connection, _ = scene.connect(OUTSIDE, proxies=LOOPBACK)
    feed(connection, encode_gateway_header(SOURCE, "tenant/namespace") + frame("n1"))
    await let_callbacks_run()
    assert scene.entrance.asked == [None]


@pytest.mark.parametrize("cluster", [None, "tenant/namespace"])
async def test_another_gateway_names_the_principal(cluster: str | None) -> None:
    scene = Scene()
    scene.entrance.opened.set_result(scene.served)
    connection, transport = scene.connect(PEERS, proxies=LOOPBACK, answers_in_order=False)
    assert scene.dispatcher.principal == GATEWAY
    feed(connection, encode_gateway_header(SOURCE, cluster, "User:a:b") + frame("n1"))
    await let_callbacks_run()
    assert scene.dispatcher.principal == Principal("User", "a:b") and transport.written == b"1;"


async def test_another_gateway_need_not_name_the_principal() -> None:
    scene = Scene()
    scene.entrance.opened.set_result(scene.served)
    connection, _ = scene.connect(PEERS, proxies=LOOPBACK, answers_in_order=False)
    feed(connection, encode_proxy_header(SOURCE) + frame("n1"))
    await let_callbacks_run()
    assert scene.dispatcher.principal == GATEWAY


async def test_no_client_names_its_principal_by_a_header() -> None:
    scene = Scene()
    connection, _ = scene.connect(OUTSIDE, proxies=LOOPBACK)
    feed(connection, encode_gateway_header(SOURCE, principal="User:root") + frame("n1"))
    await let_callbacks_run()
    assert scene.dispatcher.principal == ANONYMOUS


@pytest.mark.parametrize("name", ["orders.example.com", "ORDERS.Example.com."])
async def test_a_host_name_says_which_cluster(name: str) -> None:
    """As a load balancer tells it that has ended TLS, or TLS here."""
    hosts = {"orders.example.com": "acme/orders"}
    scene = Scene()
    scene.entrance.opened.set_result(scene.served)
    connection, _ = scene.connect(Listener("outside", single_address=True, cluster_hosts=hosts))
    connection.become(ANONYMOUS, name, "192.0.2.7:1")
    feed(connection, frame("n1"))
    await let_callbacks_run()
    (listener,) = scene.entrance.listeners
    assert (listener.cluster, listener.host, listener.name) == ("acme/orders", "orders.example.com", "outside")


@pytest.mark.parametrize("name", ["other.example.com", "", None])
async def test_other_host_names_say_nothing(name: str | None) -> None:
    listener = Listener("outside", single_address=True, cluster_hosts={"orders.example.com": "acme/orders"})
    scene = Scene()
    scene.entrance.opened.set_result(scene.served)
    connection, _ = scene.connect(listener)
    connection.become(ANONYMOUS, name, "192.0.2.7:1")
    feed(connection, frame("n1"))
    await let_callbacks_run()
    assert scene.entrance.listeners == [listener]


@pytest.mark.parametrize("is_named", [True, False])
async def test_a_gateway_of_one_cluster_does_not_answer_for_others(*, is_named: bool) -> None:
    scene = Scene()
    scene.dispatcher.entrance = None
    connection, transport = scene.connect(PEERS, proxies=LOOPBACK, answers_in_order=False)
    header = encode_gateway_header(SOURCE, "tenant/namespace") if is_named else encode_proxy_header(SOURCE)
    feed(connection, header + frame("n1"))
    await let_callbacks_run()
    assert transport.closing == is_named
    assert scene.dispatcher.begun == ([] if is_named else ["1"])


async def test_who_reads_nothing_takes_from_its_own_cluster() -> None:
    """Those that have stood longest in a cluster that holds too much go, and none of another cluster."""
    quiet, loud = (ServedCluster(cluster()) for _ in range(2))
    loud.cluster.unread.budget_bytes = 10 * MIB
    limits, fleet = Limits(unread_budget_bytes=40 * MIB), SimpleNamespace(forwarding=None)
    config = SimpleNamespace(limits=limits, kafka=None, fleet=fleet)
    entrance = FakeEntrance()
    server = KafkaServer(cast(Config, config), cast(Dispatcher, FakeDispatcher(entrance)), Metrics())
    clients = []
    for served in (quiet, loud, loud):
        entrance.opened = asyncio.get_running_loop().create_future()
        entrance.opened.set_result(served)
        connection, transport = KafkaConnection(cast(Owner, server), OUTSIDE), FakeTransport()
        connection.connection_made(transport)
        feed(connection, frame("n1"))
        await let_callbacks_run()
        clients.append((connection, transport))
    server.unread_changed(clients[0][0], 12 * MIB)
    server.unread_changed(clients[1][0], 6 * MIB)
    server.unread_changed(clients[2][0], 6 * MIB)
    await let_callbacks_run()
    assert [transport.aborted for _, transport in clients] == [False, True, False]
    assert (quiet.cluster.unread.size_bytes, loud.cluster.unread.size_bytes) == (12 * MIB, 6 * MIB)
    server.unread_changed(clients[0][0], 36 * MIB)  # and the budget of all holds
    await let_callbacks_run()
    assert [transport.aborted for _, transport in clients] == [True, True, False]
    for connection, _ in clients:
        connection.connection_lost(None)
    assert quiet.cluster.unread.size_bytes == loud.cluster.unread.size_bytes == 0


async def test_requests_count_in_the_share_of_their_cluster() -> None:
    """Also those that came before it was chosen; and all is given back."""
    scene = Scene(requests_budget_bytes=MIB)
    connection, transport = scene.connect()
    feed(connection, frame("f1") + frame("f2"))
    scene.entrance.opened.set_result(scene.served)
    await let_callbacks_run()
    share = scene.server.requests_of(scene.served)
    held = len(frame("f1") + frame("f2"))
    assert share._held.value == scene.server.requests._held.value == held
    other, _ = scene.connect()
    feed(other, frame("f3"))
    await let_callbacks_run()
    assert share._held.value == held + len(frame("f3"))
    for number in "123":
        scene.dispatcher.futures[number].set_result(number)
    await let_callbacks_run()
    connection.connection_lost(None)
    other.connection_lost(None)
    assert transport.written == b"1;2;" and share._held.value == scene.server.requests._held.value == 0


async def test_connections_of_a_cluster_that_is_closed_end() -> None:
    """Those of other gateways: its clients have gone. Who comes again has it opened."""
    closed, other = (ServedCluster(cluster()) for _ in range(2))
    config = SimpleNamespace(limits=Limits(), kafka=None, fleet=SimpleNamespace(forwarding=None))
    entrance = FakeEntrance()
    server = KafkaServer(cast(Config, config), cast(Dispatcher, FakeDispatcher(entrance)), Metrics())
    transports = []
    for served in (closed, other):
        entrance.opened = asyncio.get_running_loop().create_future()
        entrance.opened.set_result(served)
        connection, transport = KafkaConnection(cast(Owner, server), OUTSIDE), FakeTransport()
        connection.connection_made(transport)
        feed(connection, frame("n1"))
        await let_callbacks_run()
        transports.append(transport)
    server.end_connections(closed.cluster)
    assert [transport.closing for transport in transports] == [True, False]
    assert [*server._shares] == [id(other.cluster)]


@pytest.mark.parametrize(("trusted", "closed"), [("10.0.0.0/8", True), ("127.0.0.0/8", False)])
async def test_only_trusted_peers_may_forward_requests(trusted: str, closed: bool) -> None:
    """The fake connection comes from loopback. Without TLS its address is all that is known of a peer."""
    config = Config.model_validate({"fleet": {"forwarding": {"trusted_peers": [trusted]}}})
    server = KafkaServer(config, cast(Dispatcher, FakeDispatcher()), Metrics())
    assert config.fleet.forwarding is not None
    connection, transport = server._peer_entrance(config.fleet.forwarding)(), FakeTransport()
    connection.connection_made(transport)
    assert transport.closing is closed


async def test_a_connection_that_is_finished_before_its_cluster_is_open_is_closed() -> None:
    """A gateway that stops would wait for it in vain: its request has not begun, and does not begin any more."""
    scene = Scene()
    connection, transport = scene.connect()
    feed(connection, frame("n1"))
    await let_callbacks_run()
    connection.finish("shutdown")
    assert not transport.closing
    scene.entrance.opened.set_result(scene.served)
    await let_callbacks_run()
    assert transport.closing
    assert scene.dispatcher.begun == []
    connection.connection_lost(None)


async def test_no_request_is_larger_than_the_share_of_its_cluster() -> None:
    """It would take the memory of the others while it is received."""
    scene = Scene(requests_budget_bytes=6 * MIB)
    connection, transport = scene.connect()
    feed(connection, frame("n1"))
    scene.entrance.opened.set_result(scene.served)
    await let_callbacks_run()
    feed(connection, (5 * MIB).to_bytes(4, "big"))
    assert not transport.closing
    connection.connection_lost(None)
    connection, transport = scene.connect()
    feed(connection, frame("n1"))
    await let_callbacks_run()
    feed(connection, (7 * MIB).to_bytes(4, "big"))
    assert transport.closing
    connection.connection_lost(None)
