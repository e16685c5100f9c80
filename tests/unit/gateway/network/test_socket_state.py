"""Clients that close their side of a connection that is not read at present, or send nothing more."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from gateway.config.limits import MIB
from gateway.network.progress import BEHIND_BYTES, is_behind
from gateway.network.request_budget import RECEIVE_S
from gateway.network.socket_state import has_ended, sends_nothing
from gateway.transport.carried import UNDECRYPTED_BYTES
from tests.unit.gateway.network.connection_harness import Conversation, FakeTransport, frame
from tests.unit.gateway.network.server_harness import Client, server_of

WAIT_S = 10


class Ends(NamedTuple):
    """Of a connection."""

    client: socket.socket
    ours: FakeTransport


@pytest.fixture
def ends() -> Iterator[Ends]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
    ours = FakeTransport()
    ours.info["socket"] = accepted
    with client, accepted:
        yield Ends(client, ours)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0)


async def test_an_end_behind_data_that_nobody_reads(ends: Ends) -> None:
    assert sends_nothing(ends.ours)
    ends.client.sendall(b"unread")
    await until(lambda: not sends_nothing(ends.ours))
    assert not has_ended(ends.ours)
    ends.client.shutdown(socket.SHUT_WR)
    await until(lambda: has_ended(ends.ours))


async def test_a_reset(ends: Ends) -> None:
    ends.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ends.client.close()
    await until(lambda: has_ended(ends.ours))


def test_a_connection_that_has_no_socket_any_more(ends: Ends) -> None:
    ends.ours.info["socket"].close()
    for transport in (ends.ours, FakeTransport()):
        assert not has_ended(transport) and not sends_nothing(transport)


def test_what_is_not_decrypted_yet_has_been_sent(ends: Ends) -> None:
    ends.ours.info[UNDECRYPTED_BYTES] = 1
    assert not sends_nothing(ends.ours)


async def test_a_fetch_ends_whose_client_has_gone_behind_requests_that_are_not_read(ends: Ends) -> None:
    conversation, ended = Conversation(), list[None]()
    conversation.transport.info |= ends.ours.info
    conversation.feed(frame("a1") + frame("n2"))
    assert not conversation.transport.reading
    conversation.connection.look_for_end()
    assert conversation.dispatcher.client is not None
    conversation.dispatcher.client.begins_wait(lambda: ended.append(None))
    conversation.connection.look_for_end()
    assert not ended, "it is still there"
    ends.client.shutdown(socket.SHUT_WR)
    await until(lambda: has_ended(ends.ours))
    for _ in range(2):
        conversation.connection.look_for_end()
    assert len(ended) == 1 and conversation.dispatcher.client.has_ended
    conversation.lose()


async def test_the_server_looks_for_clients_that_have_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop reports the end of a connection that is read."""
    monkeypatch.setattr("gateway.network.server.SWEEP_S", 0.001)
    monkeypatch.setattr("gateway.network.connection.has_ended", lambda _: True)
    server, _ = server_of()
    ended = [asyncio.Event(), asyncio.Event()]
    clients = [Client(server) for _ in ended]
    for number, (client, end) in enumerate(zip(clients, ended, strict=True)):
        client.left = frame("a1") + frame("n2") * number
        client.read(1 << 30)
        client.connection._client.begins_wait(end.set)
    sweeping = asyncio.create_task(server._sweep())
    async with asyncio.timeout(WAIT_S):
        await ended[1].wait()
    sweeping.cancel()
    assert not ended[0].is_set()
    for client in clients:
        client.lose()


@pytest.mark.parametrize("has_sent", [False, True])
async def test_a_request_whose_rest_does_not_come_is_given_up_while_memory_is_short(
    ends: Ends, has_sent: bool
) -> None:
    """Unless it is the gateway that does not read it: thousands of clients may have lost their network."""
    conversation = Conversation(requests_budget_bytes=MIB)
    conversation.transport.info |= ends.ours.info
    conversation.feed(frame("n1", 1_000)[:500])
    if has_sent:
        ends.client.sendall(b"the rest")
        await until(lambda: not sends_nothing(ends.ours))
    connection = conversation.connection
    now_s = connection.last_activity
    assert not connection.lacks_memory
    conversation.server.requests.received(MIB)
    assert connection.lacks_memory
    assert not connection.holds_for_client(now_s + RECEIVE_S), "it has just begun to wait"
    assert connection.holds_for_client(now_s + RECEIVE_S + 1) == (0 if has_sent else 500)
    conversation.lose()


async def test_a_client_is_not_slow_while_the_gateway_does_not_read_what_it_sends(
    ends: Ends,
) -> None:
    """The process has stood still, for example."""
    server, _ = server_of()
    client = Client(server)
    client.transport.info["socket"] = ends.ours.info["socket"]
    client.feed((10 * MIB).to_bytes(4, "big") + bytes(MIB), MIB)
    now_s = asyncio.get_running_loop().time()
    assert not client.connection.holds_for_client(now_s)
    ends.client.sendall(bytes(BEHIND_BYTES - 1))
    await until(lambda: not sends_nothing(ends.ours))
    assert client.connection.holds_for_client(now_s + 3)
    ends.client.sendall(b"x")
    await until(lambda: is_behind(ends.ours))
    for later_s in (3, 4):
        assert not client.connection.holds_for_client(now_s + later_s)
    client.lose()
