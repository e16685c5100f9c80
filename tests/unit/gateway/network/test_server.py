"""What all connections share: the memory of requests, and of answers that are not read."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config.limits import MIB
from gateway.config.listeners import LOOPBACK
from gateway.network.connection import READ_BUFFER_BYTES, SHORT_READ_BYTES, KafkaConnection
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.network.connection_harness import frame
from tests.unit.gateway.network.server_harness import Client, server_of

PROXY_LINE = b"PROXY TCP4 192.0.2.7 10.0.0.1 51000 9092\r\n"


async def test_a_proxy_header_is_no_request() -> None:
    server, dispatcher = server_of()
    client = Client(server, proxies=LOOPBACK)
    client.feed(PROXY_LINE + frame("n1"))
    assert dispatcher.begun == ["1"]
    assert server.metrics.request_bytes.value == 0


async def test_half_a_proxy_header_is_read_on_though_memory_is_short() -> None:
    """If incomplete headers use all the memory, nothing else frees any."""
    server, _ = server_of(requests_budget_bytes=MIB)
    client = Client(server, proxies=LOOPBACK)
    client.feed(PROXY_LINE[:20])
    server.requests.received(MIB)
    client.feed(PROXY_LINE[20:] + frame("n1"))
    assert client.transport.written == b"1;"
    client.lose()
    assert server.metrics.request_bytes.value == MIB


@pytest.mark.parametrize("leaves", [True, False])
async def test_a_request_that_waits_for_other_clients_holds_no_memory(leaves: bool) -> None:
    """Whether it is answered, or its client disconnects before."""
    server, dispatcher = server_of(requests_budget_bytes=MIB)
    waiting = [Client(server) for _ in range(4)]
    for number, client in enumerate(waiting):
        client.feed(frame(f"w{number}", 500_000))
        await let_callbacks_run()
    assert len(dispatcher.begun) == 4 and server.metrics.request_bytes.value == 0
    if not leaves:
        for future in dispatcher.futures.values():
            future.set_result("x")
        await let_callbacks_run()
        assert [client.transport.written for client in waiting] == [b"x;"] * 4
    for client in waiting:
        client.lose()
    assert server.metrics.request_bytes.value == 0


async def test_who_works_on_a_request_leaves_reading_to_others() -> None:
    server, dispatcher = server_of(requests_budget_bytes=MIB, max_request_bytes=MIB, max_message_bytes=1024)
    busy, other, hog = (Client(server) for _ in range(3))
    busy.feed(frame("s1"))
    await asyncio.sleep(0)
    busy.feed(frame("f2", 100), most=20)
    for number in "3567":
        hog.feed(frame(f"f{number}", READ_BUFFER_BYTES - 4))
    assert server.requests._first is busy.connection, "it has sent a part of a request"
    other.left = frame("n4", 100)
    other.read(20)  # what was in flight
    busy.feed(b"")
    assert "2" not in dispatcher.begun, "the request before it is not answered"
    other.feed(b"")
    assert "4" in dispatcher.begun and server.requests._first is None
    for client in (busy, other, hog):
        client.lose()


async def test_the_one_that_is_read_while_memory_is_short_is_read_fast() -> None:
    """In small reads, a large request would not be whole in its time."""
    server, _ = server_of(requests_budget_bytes=MIB, max_request_bytes=MIB, max_message_bytes=1024)
    clients = [Client(server) for _ in range(4)]
    for client in clients:
        client.feed(frame("n1", 500_000), most=100_000)
    sizes = {client: len(client.connection.get_buffer(-1)) for client in clients}
    assert min(sizes.values()) > SHORT_READ_BYTES, "there is memory"
    server.requests.received(MIB)
    sizes = {client: len(client.connection.get_buffer(-1)) for client in clients}
    fast = [client.connection for client in clients if sizes[client] > SHORT_READ_BYTES]
    assert fast == [server.requests._first]
    server.requests.released(MIB)
    for client in clients:
        client.lose()


async def test_a_connection_that_closes_is_not_waited_for() -> None:
    server, _ = server_of(requests_budget_bytes=MIB, max_request_bytes=MIB, max_message_bytes=1024)
    closing, other, hog = (Client(server) for _ in range(3))
    closing.feed(frame("n1", 100), most=20)
    other.feed(frame("n2", 100), most=20)
    closing.connection.close("idle")  # and does not read its last responses
    hog.feed(frame("f3", MIB - 4))
    assert server.requests._first is other.connection
    closing.lose()
    closing.connection.regulate_reading()
    assert closing.connection not in server.requests._waiting


KINDS = st.sampled_from(["n", "f", "w", "wL", "s", "p", "0", "nL", "fL", "sL", "nE", "nLE", "fE", "m", "mL", "d", "c"])
EVENTS = st.one_of(
    st.tuples(st.just("frame"), KINDS, st.sampled_from([0, 50, 5_000, 300_000])),
    st.tuples(st.just("some"), st.integers(1, 100_000)),
    st.tuples(st.sampled_from(["read", "done", "cancel", "fail", "turn", "thread", "pause", "resume", "eof", "close",
                               "abort", "lose", "new"])),
)  # fmt: skip


class Lives:
    """Connections with random actions of their clients."""

    def __init__(self) -> None:
        self.server, self.dispatcher = server_of(
            requests_budget_bytes=MIB, max_request_bytes=MIB, max_message_bytes=1024, max_in_flight_requests=4
        )
        self.clients = [Client(self.server) for _ in range(3)]
        self.number = 0

    def futures(self) -> list[asyncio.Future[Any]]:
        found = [*self.dispatcher.futures.values(), *self.dispatcher.serial.values()]
        return [future for future in found if not future.done()]

    async def step(self, which: int, event: tuple[Any, ...]) -> None:
        place = which % len(self.clients)
        client = self.clients[place]
        match event[0]:
            case "frame":
                self.number += 1
                text = f"{event[1][0]}{self.number}"
                client.feed(frame(text.ljust(max(event[2], len(text))) + event[1][1:]))
            case "some":
                self.number += 1
                client.feed(frame(f"n{self.number}", 2 * event[1]), most=event[1])
            case "read":
                client.feed(b"")
            case "turn":
                await asyncio.sleep(0)
            case "thread":
                await asyncio.sleep(0.001)
            case "new":
                client.lose()
                self.clients[place] = Client(self.server)
            case "done" | "cancel" | "fail" as end:
                self.end(which, end)
            case kind:
                self.happens(client, kind)

    def end(self, which: int, how: str) -> None:
        futures = self.futures()
        if futures:
            future = futures[which % len(futures)]
            if how == "done":
                future.set_result(str(which))
            elif how == "fail":
                future.set_exception(RuntimeError("defect"))
            else:
                future.cancel()

    def happens(self, client: Client, kind: str) -> None:
        connection = client.connection
        if client.lost:
            return
        if kind == "lose":
            client.lose()
        elif kind == "pause" and not client.paused:
            client.paused = True
            connection.pause_writing()
        elif kind == "resume" and client.paused:
            client.paused = False
            connection.resume_writing()
        elif kind == "eof" and not connection.eof_received():
            client.transport.close()
        elif kind == "close":
            connection.close("test")
        elif kind == "abort":
            connection.abort("test")


async def _live(events: list[tuple[int, tuple[Any, ...]]]) -> None:
    lives, defects = Lives(), list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: defects.append(context))
    for which, event in events:
        await lives.step(which, event)
    for client in lives.clients:
        client.lose()
    server, requests = lives.server, lives.server.requests
    async with asyncio.timeout(10):
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.001)
    assert not defects
    assert server.metrics.request_bytes.value == server.metrics.in_flight.value == 0
    assert lives.dispatcher.own.cluster.unread.size_bytes == 0
    assert requests.decoding.is_empty
    assert not requests._waiting and requests._first is None
    assert not server._connections and not server._unread
    assert not lives.futures(), "nobody waits for what nobody will read"


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), EVENTS), max_size=40))
def test_nothing_is_held_for_clients_that_have_gone(events: list[tuple[int, tuple[Any, ...]]]) -> None:
    asyncio.run(_live(events))


async def test_those_that_are_not_read_are_not_told_again_that_memory_is_exhausted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There may be twenty thousand of them."""
    server, _ = server_of(requests_budget_bytes=MIB)
    clients = [Client(server) for _ in range(3)]
    told = Mock()
    server.requests.received(MIB)
    assert not any(client.transport.reading for client in clients)
    monkeypatch.setattr(KafkaConnection, "regulate_reading", told)
    server.requests.released(1)
    server.requests.received(1)
    assert not told.called
    reading = Client(server)
    server.requests.released(1)
    server.requests.received(1)
    assert told.call_count == 1
    for client in (*clients, reading):
        client.lose()


async def test_while_memory_is_short_what_waits_for_its_client_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with the most memory first, until there is memory again."""
    monkeypatch.setattr("gateway.network.server.SWEEP_S", 0.001)
    server, _ = server_of(requests_budget_bytes=MIB)
    clients = [Client(server) for _ in range(3)]
    for number, client in enumerate(clients):
        client.left = frame("a1") + frame("n2", 200_000 + number)
        client.read(1 << 30)  # both come in one piece
        client.connection.last_activity -= 100
        monkeypatch.setattr(client.transport, "abort", client.lose)
    server.requests.received(MIB - 500_000)
    watching = asyncio.create_task(server._watch_requests())
    await asyncio.sleep(0.05)
    watching.cancel()
    assert [client.lost for client in clients] == [False, False, True]
    for client in clients:
        client.lose()


async def test_who_is_told_that_memory_is_exhausted_is_told_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.network.server.REGULATED_AT_ONCE", 2)
    server, _ = server_of(requests_budget_bytes=MIB)
    clients = [Client(server) for _ in range(7)]
    for reading in (5, 3, 1, 0):
        if reading == 5:
            server.requests.received(MIB)
        else:
            await asyncio.sleep(0)
        assert sum(client.transport.reading for client in clients) == reading
    for client in clients:
        client.lose()
