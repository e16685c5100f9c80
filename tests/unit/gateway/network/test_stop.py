"""A gateway that stops answers what it has begun, and begins nothing more: clients send the rest to another gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gateway.network.connection import KafkaConnection
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.network.connection_harness import frame
from tests.unit.gateway.network.server_harness import Client, server_of

LONG_MS = 60_000


@pytest.mark.parametrize("kind", ["f", "s", "p"])
async def test_what_is_begun_is_answered_and_nothing_more_is_begun(kind: str) -> None:
    server, dispatcher = server_of(stop_drain_ms=LONG_MS)
    busy, idle = Client(server), Client(server)
    busy.feed(frame(f"{kind}1") + frame("n2"))
    stopping = asyncio.create_task(server.stop())
    await let_callbacks_run()
    assert idle.transport.closing and not busy.transport.closing
    busy.feed(frame("f3") + frame("f4", 1_000_000))  # a producer sends without a pause
    assert not busy.left, "with unread data, the system would reset the connection, and discard the responses"
    if kind != "f":
        dispatcher.serial["1"].set_result(None)
        await let_callbacks_run()
    if kind != "s":
        dispatcher.futures["1"].set_result("1")
        await let_callbacks_run()
    assert dispatcher.begun == ["1"]
    assert busy.transport.written == b"1;"
    assert server.metrics.request_bytes.value <= 100
    assert busy.transport.closing
    for client in (busy, idle):
        client.lose()
    async with asyncio.timeout(5):
        await stopping


async def test_answers_that_are_being_sent_are_not_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda _: sleep(0))  # it looks in every turn
    server, dispatcher = server_of(stop_drain_ms=LONG_MS)
    client = Client(server)
    client.feed(frame("f1"))
    stopping = asyncio.create_task(server.stop())
    await let_callbacks_run()
    dispatcher.futures["1"].set_result("1")
    await let_callbacks_run()
    assert client.transport.closing and not client.transport.aborted
    assert not stopping.done(), "the client has not read the answer yet"
    client.lose()
    async with asyncio.timeout(5):
        await stopping


async def test_large_requests_are_begun_before_it_stops() -> None:
    """An earlier request is answered while a later one is decoded in a thread."""
    server, dispatcher = server_of(stop_drain_ms=LONG_MS)
    client = Client(server)
    client.feed(frame("f1"))
    client.feed(frame("f2L"))
    stopping = asyncio.create_task(server.stop())
    await asyncio.sleep(0)
    dispatcher.futures["1"].set_result("1")
    async with asyncio.timeout(5):
        while "2L" not in dispatcher.futures:
            await asyncio.sleep(0)
    assert not client.transport.closing
    dispatcher.futures["2L"].set_result("2")
    await let_callbacks_run()
    assert client.transport.written == b"1;2;"
    assert client.transport.closing
    client.lose()
    async with asyncio.timeout(5):
        await stopping


@pytest.mark.parametrize("hold_back", [lambda each: each._client.mute(LONG_MS), lambda each: each.pause_writing()])
async def test_requests_that_have_not_begun_are_not_waited_for(hold_back: Callable[[KafkaConnection], None]) -> None:
    """Of a client that is over its quota, or does not read its answers."""
    server, dispatcher = server_of(stop_drain_ms=LONG_MS)
    client = Client(server)
    hold_back(client.connection)
    client.feed(frame("f1"))
    stopping = asyncio.create_task(server.stop())
    await let_callbacks_run()
    assert client.transport.closing and not dispatcher.begun
    client.lose()
    async with asyncio.timeout(5):
        await stopping


async def test_it_waits_no_longer_than_it_may() -> None:
    server, _ = server_of(stop_drain_ms=10)
    client = Client(server)
    client.feed(frame("f1"))
    async with asyncio.timeout(5):
        await server.stop()
    assert client.transport.closing
    client.lose()


async def test_a_client_that_comes_while_it_stops_is_not_served() -> None:
    """Its TLS handshake had begun before. Requests would be waited for, or run in services that have ended."""
    server, dispatcher = server_of(stop_drain_ms=LONG_MS)
    busy = Client(server)
    busy.feed(frame("f1"))
    stopping = asyncio.create_task(server.stop())
    await let_callbacks_run()
    late = Client(server)
    late.feed(frame("f2"))
    assert late.transport.closing and dispatcher.begun == ["1"]
    for client in (busy, late):
        client.lose()
    async with asyncio.timeout(5):
        await stopping
    after = Client(server)
    after.feed(frame("f3"))
    assert after.transport.closing and dispatcher.begun == ["1"]
    after.lose()
