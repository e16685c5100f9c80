"""The memory of answers that clients have not read."""

from __future__ import annotations

import asyncio

import pytest

from gateway.config.limits import MIB
from gateway.network.server import KafkaServer
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.network.server_harness import Client, server_of


def silent(server: KafkaServer, count: int, unread_bytes: int, monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    """Clients that have sent nothing for long, and have so much to read."""
    clients = [Client(server) for _ in range(count)]
    for client in clients:
        client.connection.last_activity -= 100
        monkeypatch.setattr(client.transport, "get_write_buffer_size", lambda: unread_bytes)
        monkeypatch.setattr(client.transport, "abort", client.lose)
    return clients


async def test_answers_that_are_held_elsewhere_close_nobody() -> None:
    """Forwarded fetches count as unread too, and have no connection of their own."""
    server, dispatcher = server_of(unread_budget_bytes=20 * MIB)
    client, unread = Client(server), dispatcher.own.cluster.unread
    unread.size_bytes += 30 * MIB
    client.connection.pause_writing()
    client.connection.resume_writing()
    client.lose()
    await let_callbacks_run()
    assert unread.size_bytes == 30 * MIB
    assert not client.transport.aborted


async def test_those_that_have_stood_longest_go_first() -> None:
    server, dispatcher = server_of(unread_budget_bytes=20 * MIB)
    first, second = Client(server), Client(server)
    server.unread_changed(first.connection, 8 * MIB)
    server.unread_changed(second.connection, 8 * MIB)
    server.unread_changed(first.connection, 13 * MIB)  # it still gets responses, but is the oldest
    await let_callbacks_run()
    assert first.transport.aborted and not second.transport.aborted
    assert dispatcher.own.cluster.unread.size_bytes == 8 * MIB


async def test_who_is_given_up_does_not_count_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep may come to it before it is closed."""
    server, dispatcher = server_of(unread_budget_bytes=20 * MIB)
    unread, clients = dispatcher.own.cluster.unread, silent(server, 3, 10_000_000, monkeypatch)
    for client in (*clients, *clients):
        server._count_silent(client.connection, asyncio.get_running_loop().time())
    await let_callbacks_run()
    assert [client.lost for client in clients] == [True, False, False] and unread.size_bytes == 20_000_000
    for client in clients:
        client.lose()
    assert unread.size_bytes == 0 and not server._given_up


async def test_small_answers_that_are_not_read_count_when_their_clients_send_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is too small for its connection to be told that it must not write."""
    monkeypatch.setattr("gateway.network.server.SWEEP_S", 0.001)
    server, dispatcher = server_of(unread_budget_bytes=20 * MIB)
    unread, clients = dispatcher.own.cluster.unread, silent(server, 101, 250_000, monkeypatch)
    busy = clients.pop()
    sweeping = asyncio.create_task(server._sweep())
    async with asyncio.timeout(10):
        while not any(client.lost for client in clients):
            busy.connection.last_activity = asyncio.get_running_loop().time()
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)
    assert 0 < unread.size_bytes <= 20 * MIB
    assert sum(client.lost for client in clients) < 50 and not busy.lost
    for client in (*clients, busy):
        monkeypatch.setattr(client.transport, "get_write_buffer_size", lambda: 0)
    async with asyncio.timeout(10):
        while unread.size_bytes:
            await asyncio.sleep(0.001)
    sweeping.cancel()
    for client in (*clients, busy):
        client.lose()


async def test_who_has_read_all_by_now_is_not_closed_for_what_was_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few answers of a client that sends nothing more are counted now and then only."""
    server, dispatcher = server_of(unread_budget_bytes=20 * MIB)
    unread, clients = dispatcher.own.cluster.unread, silent(server, 3, 10_000_000, monkeypatch)
    first, second, third = clients
    for client in (first, second):
        server._count_silent(client.connection, asyncio.get_running_loop().time())
    monkeypatch.setattr(first.transport, "get_write_buffer_size", lambda: 0)
    server._count_silent(third.connection, asyncio.get_running_loop().time())
    await let_callbacks_run()
    assert not any(client.lost for client in clients) and unread.size_bytes == 20_000_000
    for client in clients:
        client.lose()
    assert unread.size_bytes == 0
