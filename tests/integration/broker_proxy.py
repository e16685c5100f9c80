"""A broker's binary protocol behind a proxy that can leave one topic's commands unanswered."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

START_TIMEOUT_S = 10


class BrokerProxy:
    """Forwards everything except commands that name a topic of ``unserved``.

    Brokers return their own address in responses to lookups. So only lookups come here, when a log is opened.
    """

    def __init__(self, service_url: str) -> None:
        address = urlsplit(service_url)
        self._broker = (address.hostname, address.port)
        self.unserved: set[str] = set()
        """Parts of topic names."""
        self.dropped = 0
        self.service_url = ""
        self._writers: set[asyncio.StreamWriter] = set()

    @contextmanager
    def running(self) -> Iterator[BrokerProxy]:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._listen(), loop).result(START_TIMEOUT_S)
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self._close(), loop).result(START_TIMEOUT_S)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.service_url = f"pulsar://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _close(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_broker, to_broker = await asyncio.open_connection(*self._broker)
        self._writers |= {writer, to_broker}
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await asyncio.gather(self._pass_commands(reader, to_broker), _pass_bytes(from_broker, writer))
        finally:
            writer.close()
            to_broker.close()
            self._writers -= {writer, to_broker}

    async def _pass_commands(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            size = await reader.readexactly(4)
            frame = await reader.readexactly(struct.unpack(">I", size)[0])
            if any(topic.encode() in frame for topic in self.unserved):
                self.dropped += 1
                continue
            writer.write(size + frame)
            await writer.drain()


async def _pass_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
