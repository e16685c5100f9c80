"""The Kafka listeners: accept connections within their limit, close idle ones."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import structlog

from gateway.background import TaskGroup
from gateway.config import FORWARDING_LISTENER, AddressSection, Config
from gateway.dispatch import Dispatcher
from gateway.network.connection import READ_BUFFER_BYTES, KafkaConnection
from gateway.network.request_budget import RequestBudget
from gateway.observability.metrics import Metrics
from gateway.requests.cluster import Unread
from gateway.requests.context import Listener

SWEEP_S = 10.0
BACKLOG = 4_096
CODEC_THREADS = 2
"""They share one interpreter: more would be no faster."""

log = structlog.get_logger()


class KafkaServer:
    """Owns the listening sockets and their connections."""

    def __init__(self, config: Config, dispatcher: Dispatcher, metrics: Metrics, unread: Unread) -> None:
        self.dispatcher = dispatcher
        self.limits = config.limits
        self.metrics = metrics
        self.unread = unread
        self.requests = RequestBudget(
            config.limits.requests_budget_bytes, metrics.request_bytes, self._regulate_all
        )
        self.read_buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self.threads = ThreadPoolExecutor(CODEC_THREADS, "codec")
        self._kafka = config.kafka
        self._forwarding = config.fleet.forwarding
        self._unread: dict[KafkaConnection, int] = {}
        self._unread_bytes = 0
        self._connections: set[KafkaConnection] = set()
        self._of_peers = 0
        self._listening: list[asyncio.Server] = []
        self._tasks = TaskGroup()

    async def bind(self) -> dict[str, int]:
        """Take the ports and return them by listener; nobody can connect before `start`. Raises OSError."""
        _raise_file_limit()
        ports = {
            listener.name: await self._bind(
                listener,
                partial(
                    KafkaConnection, self, Listener(listener.name, listener.single_address),
                    proxies=listener.trusted_proxies if listener.proxy_protocol else None,
                ),
            )
            for listener in self._kafka.all_listeners
        }
        if self._forwarding is not None:
            peers = partial(
                KafkaConnection, self, Listener(FORWARDING_LISTENER), proxies=self._forwarding.trusted_peers,
                answers_in_order=False,
            )  # fmt: skip
            ports[FORWARDING_LISTENER] = await self._bind(self._forwarding, peers)
        return ports

    async def _bind(self, listener: AddressSection, connection: Callable[[], KafkaConnection]) -> int:
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

    async def stop(self) -> None:
        """Accept nothing more, let requests in flight be answered for a moment, then close."""
        for server in self._listening:
            server.close()
        await self._tasks.close()
        deadline = asyncio.get_running_loop().time() + self.limits.stop_drain_ms / 1000
        while any(not c.idle for c in self._connections) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.05)
        for connection in tuple(self._connections):
            connection.close("shutdown")
        await asyncio.sleep(0)

    def opened(self, connection: KafkaConnection) -> bool:
        """False when there are too many: the connection closes itself."""
        self.metrics.connections_total.inc()
        self._connections.add(connection)
        self.metrics.connections.set(len(self._connections))
        if connection.listener.name == FORWARDING_LISTENER:  # those clients are counted where they came
            self._of_peers += 1
            return True
        return len(self._connections) - self._of_peers <= self.limits.max_connections

    def unread_changed(self, connection: KafkaConnection, size_bytes: int) -> None:
        """So much of a connection's answers is not taken. Those that have stood longest go when it is too much."""
        self._count_unread(size_bytes - self._unread.get(connection, 0))
        if size_bytes:
            self._unread[connection] = size_bytes  # keeps its place
        else:
            self._unread.pop(connection, None)
        while self._unread_bytes > self.limits.unread_budget_bytes:
            longest = next(iter(self._unread))
            self._count_unread(-self._unread.pop(longest))
            asyncio.get_running_loop().call_soon(longest.abort, "does not take its answers")

    def _count_unread(self, size_bytes: int) -> None:
        """Of connections; `unread` counts what is held elsewhere, too."""
        self._unread_bytes += size_bytes
        self.unread.size_bytes += size_bytes

    def _regulate_all(self) -> None:
        for connection in self._connections:
            connection.regulate_reading()

    def closed(self, connection: KafkaConnection) -> None:
        self._connections.discard(connection)
        self._of_peers -= connection.listener.name == FORWARDING_LISTENER
        self.metrics.connections.set(len(self._connections))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            deadline = asyncio.get_running_loop().time() - self.limits.connection_idle_ms / 1000
            for connection in tuple(self._connections):
                if connection.last_activity < deadline:
                    connection.close("idle")


def _raise_file_limit() -> None:
    """Each connection needs a file descriptor: take all that the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
