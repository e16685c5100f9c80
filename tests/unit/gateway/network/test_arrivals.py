"""Clients before login: their memory together is bounded, and other clients lose nothing."""

from __future__ import annotations

from typing import cast

from gateway.config.limits import MIB, Limits
from gateway.login.session import LoginAnswer, LoginSession
from gateway.network.arrivals import MEMORY_SHARE, Arrivals
from gateway.network.turns import Turns
from gateway.observability.metrics import Metrics
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.login.login_scene import Scene
from tests.unit.gateway.network.connection_harness import Conversation, frame
from tests.unit.gateway.network.server_harness import Client, server_of

HALF_FRAME = (400 * 1024).to_bytes(4, "big") + bytes(100 * 1024)


async def test_requests_of_unauthenticated_clients_that_never_get_whole_stop_nobody() -> None:
    server, _ = server_of(requests_budget_bytes=8 * MIB)
    logins = Scene().logins
    unauthenticated = [Client(server, logins=logins) for _ in range(200)]
    for other in unauthenticated:
        other.feed(HALF_FRAME)
    await let_callbacks_run()
    for other in unauthenticated:
        if other.transport.aborted:
            other.lose()
    assert server.metrics.request_bytes.value <= 8 * MIB // MEMORY_SHARE
    assert unauthenticated[0].lost and not unauthenticated[-1].transport.closing, "who has held memory longest goes"
    client = Client(server)
    client.feed(frame("n1"))
    assert client.transport.written == b"1;"
    for each in (*unauthenticated, client):
        each.lose()
    assert server.arrivals._held_bytes == server.metrics.request_bytes.value == 0
    assert server.arrivals._held == {} == server.arrivals._by_site


async def test_who_leaves_holds_nothing() -> None:
    server, _ = server_of(requests_budget_bytes=8 * MIB)
    other = Client(server, logins=Scene().logins)
    other.feed(HALF_FRAME)
    assert server.arrivals._held_bytes == len(HALF_FRAME)
    other.lose()
    assert server.arrivals._held_bytes == 0


async def test_unauthenticated_clients_of_all_addresses_are_counted() -> None:
    """TLS handshakes are not yet among the connections of the server."""
    limits = Limits(max_connections=10, max_unauthenticated_per_address=3)
    arrivals = Arrivals(limits, Metrics(), Turns(by_cluster=False))
    came = [arrivals.arrived(f"192.0.2.{number // 4}") for number in range(40)]
    assert sum(came) == 10 and came[:4] == [True, True, True, False]
    arrivals.left("192.0.2.0")
    assert arrivals.arrived("192.0.2.99") and not arrivals.arrived("192.0.2.98")


def test_one_network_of_ipv6_may_be_one_client() -> None:
    arrivals = Arrivals(Limits(max_unauthenticated_per_address=3), Metrics(), Turns(by_cluster=False))
    came = [arrivals.arrived(f"2001:db8::{number:x}") for number in range(1, 6)]
    assert came == [True, True, True, False, False]
    assert arrivals.arrived("2001:db8:0:1::1")
    arrivals.left("2001:db8::2")
    assert arrivals.arrived("2001:db8::9")


class Expiring:
    """Replaces a completed login."""

    expired = False

    def takes(self, frame: bytearray) -> bool:
        return self.expired

    async def answer(self, frame: bytearray) -> LoginAnswer:
        return LoginAnswer(ends="session expired")


async def test_what_was_asked_before_a_session_expired_is_answered() -> None:
    """The records of a Produce are stored: the producer must get the response, though its next Produce is too late."""
    conversation = Conversation()
    login = Expiring()
    conversation.connection._pipeline._login = cast(LoginSession, login)
    conversation.feed(frame("f1"))
    login.expired = True
    conversation.feed(frame("f2"))
    await let_callbacks_run()
    assert not conversation.transport.closing
    conversation.dispatcher.futures["1"].set_result("1")
    await let_callbacks_run()
    assert conversation.answers == ["1"] and conversation.transport.closing
    assert "2" not in conversation.dispatcher.begun


async def test_a_session_that_expires_while_a_request_is_begun() -> None:
    """The request counts as one in time: the login would close the connection, and the earlier response is not there.
    """
    conversation = Conversation()
    login = Expiring()
    conversation.connection._pipeline._login = cast(LoginSession, login)
    conversation.feed(frame("f1"))
    looks = iter([False, True])
    login.takes = lambda _: next(looks, True)  # type: ignore[method-assign,assignment]
    conversation.feed(frame("f2"))
    conversation.feed(frame("f3"))
    await let_callbacks_run()
    assert not conversation.transport.closing
    for number in ("1", "2"):
        conversation.dispatcher.futures[number].set_result(number)
    await let_callbacks_run()
    assert conversation.answers == ["1", "2"] and conversation.transport.closing
    assert "3" not in conversation.dispatcher.begun
