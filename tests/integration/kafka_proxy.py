"""Kafka's protocol behind a proxy that delays some responses."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from kafka.protocol.api_key import ApiKey

from tests.support.tcp_proxy import Direction, Stream, TcpProxy

MAX_UNANSWERED = 1_000

Answered = Callable[[ApiKey], Awaitable[None]]


class KafkaProxy:
    """Listens on `port` for the server at `server_port`, both on loopback. Responses keep their order."""

    def __init__(
        self, port: int, server_port: int, on_asked: Callable[[ApiKey], None], before_answer: Answered
    ) -> None:
        """`on_asked` is called with each request. A response is forwarded when `before_answer` has returned."""
        self._port = port
        self._proxy = TcpProxy(("127.0.0.1", server_port), self._directions)
        self._on_asked = on_asked
        self._before_answer = before_answer

    @contextmanager
    def running(self) -> Iterator[None]:
        with self._proxy.running(self._port):
            yield

    def _directions(self, client: Stream, server: Stream) -> tuple[Direction, Direction]:
        asked: deque[ApiKey] = deque(maxlen=MAX_UNANSWERED)
        return self._pass_requests(client, server, asked), self._pass_answers(server, client, asked)

    async def _pass_requests(self, client: Stream, server: Stream, asked: deque[ApiKey]) -> None:
        while True:
            frame = await _frame(client.reader)
            key = ApiKey(struct.unpack_from(">h", frame, 4)[0])
            asked.append(key)
            self._on_asked(key)
            server.writer.write(frame)
            await server.writer.drain()

    async def _pass_answers(self, server: Stream, client: Stream, asked: deque[ApiKey]) -> None:
        while True:
            frame = await _frame(server.reader)
            await self._before_answer(asked.popleft())
            client.writer.write(frame)
            await client.writer.drain()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """A frame with its length."""
    size = await reader.readexactly(4)
    return size + await reader.readexactly(struct.unpack(">i", size)[0])
