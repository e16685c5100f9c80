"""Kafka's protocol behind a proxy that delays some responses."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from kafka.protocol.api_key import ApiKey

START_TIMEOUT_S = 10
MAX_UNANSWERED = 1_000

Answered = Callable[[ApiKey], Awaitable[None]]


class KafkaProxy:
    """Listens on `port` for the server at `server_port`, both on loopback. Responses keep their order."""

    def __init__(
        self, port: int, server_port: int, on_asked: Callable[[ApiKey], None], before_answer: Answered
    ) -> None:
        """`on_asked` is called with each request. A response is forwarded when `before_answer` has returned."""
        self._ports = port, server_port
        self._on_asked = on_asked
        self._before_answer = before_answer
        self.failures: list[Exception] = []
        """Exceptions of the test's callbacks."""

    @contextmanager
    def running(self) -> Iterator[None]:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._listen(), loop).result(START_TIMEOUT_S)
            yield
            assert not self.failures, self.failures
        finally:
            asyncio.run_coroutine_threadsafe(self._close(), loop).result(START_TIMEOUT_S)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._ports[0])

    async def _close(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked: deque[ApiKey] = deque(maxlen=MAX_UNANSWERED)
        with contextlib.suppress(OSError, asyncio.CancelledError):  # the streams' callback fails for a cancelled task
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._ports[1])
            passing = [self._pass_requests(reader, to_server, asked), self._pass_answers(from_server, writer, asked)]
            tasks = [asyncio.create_task(each) for each in passing]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                for result in await asyncio.gather(*tasks, return_exceptions=True):
                    if isinstance(result, Exception) and not isinstance(result, OSError | EOFError):
                        self.failures.append(result)
                to_server.close()
        writer.close()

    async def _pass_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: deque[ApiKey]
    ) -> None:
        while True:
            frame = await _frame(reader)
            key = ApiKey(struct.unpack_from(">h", frame, 4)[0])
            asked.append(key)
            self._on_asked(key)
            writer.write(frame)
            await writer.drain()

    async def _pass_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: deque[ApiKey]
    ) -> None:
        while True:
            frame = await _frame(reader)
            await self._before_answer(asked.popleft())
            writer.write(frame)
            await writer.drain()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """A frame with its length."""
    size = await reader.readexactly(4)
    return size + await reader.readexactly(struct.unpack(">i", size)[0])
