"""An address that connects too often gets no response, and its connection is closed after a while (KIP-612)."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.config.gateway_config import FORWARDING_LISTENER
from gateway.config.limits import Limits
from gateway.config.listeners import LOOPBACK
from gateway.network.arrivals import Arrivals
from gateway.network.connection import KafkaConnection, Owner
from gateway.network.turns import Turns
from gateway.observability.metrics import Metrics
from gateway.requests.context import Listener
from gateway.security.address_quotas import AddressQuotas
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.login.login_scene import Scene as Login
from tests.unit.gateway.network.connection_harness import Conversation, FakeTransport, frame
from tests.unit.gateway.transport.test_tls import HOST, TIMEOUT_S, Lab, pumped

PROXY_LINE = b"PROXY TCP4 192.0.2.7 10.0.0.1 51000 9092\r\n"
LOCAL_LINE = b"PROXY UNKNOWN\r\n"
REASON = "connection rate exceeded"


class Exhausted:
    """The quotas of some addresses, of which each new connection is one too many."""

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self._addresses = addresses

    def throttle_time_ms(self, host: str, now_ms: float) -> int:
        return 20 if host in self._addresses else 0


def with_quota(*addresses: str, limits: Limits | None = None) -> Arrivals:
    quotas = cast(AddressQuotas, Exhausted(addresses))
    return Arrivals(limits or Limits(), Metrics(), Turns(by_cluster=False), quotas)


class Scene(Conversation):
    def __init__(self, *addresses: str, limits: Limits | None = None) -> None:
        super().__init__()
        self.server.arrivals = with_quota(*addresses, limits=limits)

    def ended(self, reason: str = REASON) -> float:
        return cast(float, self.server.metrics.connections_closed.labels(reason)._value.get())

    def accept(self, listener: str = "", **options: Any) -> None:
        self.connection = KafkaConnection(cast(Owner, self.server), Listener(listener), **options)
        self.transport = FakeTransport()
        self.connection.connection_made(self.transport)


async def until(transport: FakeTransport) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not transport.closing:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("logs_in", [True, False])
async def test_it_is_closed_unheard(*, logs_in: bool) -> None:
    scene = Scene("127.0.0.1")
    scene.accept(logins=Login().logins if logs_in else None)
    scene.feed(frame("n1"))
    await let_callbacks_run()
    assert not scene.transport.reading and not scene.transport.closing
    await until(scene.transport)
    scene.lose()
    assert scene.dispatcher.begun == [] and scene.answers == [] and scene.ended() == 1
    assert scene.server.arrivals._by_site == {}


async def test_a_client_that_gives_up_leaves_nothing() -> None:
    scene = Scene("127.0.0.1")
    scene.accept()
    scene.lose()
    await let_callbacks_run()
    assert scene.connection._arrival is None and scene.server.arrivals._by_site == {}
    assert scene.connection not in scene.server.connections


async def test_few_of_one_address_wait_for_their_end() -> None:
    scene = Scene("127.0.0.1", limits=Limits(max_unauthenticated_per_address=1))
    scene.accept()
    first = scene.transport
    scene.accept()
    assert scene.transport.closing and not first.closing


async def test_behind_a_load_balancer_the_client_is_counted() -> None:
    scene = Scene("192.0.2.7", "127.0.0.1")
    scene.accept(proxies=LOOPBACK)
    await let_callbacks_run()
    assert scene.transport.reading
    scene.feed(PROXY_LINE + frame("n1"))
    await until(scene.transport)
    assert scene.dispatcher.begun == [] and scene.ended() == 1


async def test_a_load_balancer_may_look_as_often_as_it_likes() -> None:
    scene = Scene("127.0.0.1")
    scene.accept(proxies=LOOPBACK)
    scene.feed(LOCAL_LINE + frame("n1"))
    assert scene.answers == ["1"]


async def test_other_gateways_have_no_quota() -> None:
    scene = Scene("127.0.0.1", "192.0.2.7")
    scene.accept(FORWARDING_LISTENER, proxies=LOOPBACK)
    scene.feed(PROXY_LINE + frame("n1"))
    assert scene.answers == ["1"]


async def test_behind_tls_it_is_not_counted_again() -> None:
    scene = Scene("127.0.0.1")
    scene.accept(is_new=False)
    scene.feed(frame("n1"))
    assert scene.answers == ["1"]


@pytest.mark.parametrize("is_proxied", [True, False])
async def test_no_handshake_of_tls(tmp_path: Path, *, is_proxied: bool) -> None:
    lab = Lab(tmp_path)
    lab.proxied = is_proxied
    lab.arrivals = with_quota("192.0.2.7" if is_proxied else HOST)
    await lab.start()
    assert lab.server is not None
    try:
        before = PROXY_LINE if is_proxied else b""
        with pytest.raises((AssertionError, ConnectionError)):
            await asyncio.to_thread(_pumped_once, lab, before)
    finally:
        lab.server.close()
    assert lab.carried == [] and lab.arrivals._by_site == {}
    assert lab.arrivals._metrics.connections_closed.labels(REASON)._value.get() == 1


def _pumped_once(lab: Lab, before: bytes) -> None:
    with socket.create_connection((HOST, lab.port), TIMEOUT_S) as connected:
        pumped(lab, connected, before=before)
