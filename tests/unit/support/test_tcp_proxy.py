"""A proxy that ends leaves no socket open: what is left is found by the garbage collector, in some later test."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.tcp_proxy import Direction, Stream, TcpProxy, pass_bytes

ROUNDS = 200
CONNECTIONS = 5
TIMEOUT_S = 10


def both_ways(client: Stream, server: Stream) -> tuple[Direction, Direction]:
    return pass_bytes(client, server), pass_bytes(server, client)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT_S)
        yield listener


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), TIMEOUT_S)


def test_bytes_pass_both_ways_and_an_end_closes_the_connection(server: socket.socket) -> None:
    with TcpProxy(server.getsockname(), both_ways).running() as port, connect(port) as client:
        client.sendall(b"request")
        accepted, _ = server.accept()
        with accepted:
            assert accepted.recv(100) == b"request"
            accepted.sendall(b"response")
            assert client.recv(100) == b"response"
        assert client.recv(100) == b""


def test_a_failure_of_a_direction_is_raised_at_the_end(server: socket.socket) -> None:
    async def fail() -> None:
        raise ValueError("odd frame")

    proxy = TcpProxy(server.getsockname(), lambda client, server: (fail(), pass_bytes(server, client)))
    with pytest.raises(AssertionError, match="odd frame"), proxy.running() as port, connect(port) as client:
        assert client.recv(100) == b""


def test_connections_that_arrive_at_the_end_are_closed(server: socket.socket) -> None:
    for _ in range(ROUNDS):
        clients: list[socket.socket] = []
        with TcpProxy(server.getsockname(), both_ways).running() as port:
            thread = threading.Thread(target=connect_repeatedly, args=(port, clients))
            thread.start()
        thread.join()
        for client in clients:
            client.close()
    gc.collect()  # pytest fails this test if one of them warns


def connect_repeatedly(port: int, clients: list[socket.socket]) -> None:
    """Until the proxy has ended."""
    try:
        while len(clients) < CONNECTIONS:
            clients.append(connect(port))
    except OSError:
        pass
