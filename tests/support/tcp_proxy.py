"""A proxy on loopback, with a thread and an event loop of its own, whose owner passes the bytes of each connection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 10


@dataclass(frozen=True)
class Stream:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


Direction = Coroutine[Any, Any, None]
Directions = Callable[[Stream, Stream], tuple[Direction, Direction]]
"""From the client and the server of a connection: what passes its requests, and what passes its responses."""


class TcpProxy:
    """A connection is closed when one of its directions ends."""

    def __init__(self, server: tuple[str, int], directions: Directions) -> None:
        self._server = server
        self._directions = directions
        self._connections: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self.failures: list[Exception] = []
        """What a direction has raised, except for ends of connections."""

    @contextmanager
    def running(self, port: int = 0) -> Iterator[int]:
        """Yields the port. A failure is raised at the end."""
        loop = self._loop
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            listener = asyncio.run_coroutine_threadsafe(self._listen(port), loop).result(TIMEOUT_S)
            try:
                yield listener.sockets[0].getsockname()[1]
            finally:
                asyncio.run_coroutine_threadsafe(self._close(listener), loop).result(TIMEOUT_S)
            assert not self.failures, self.failures
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def lose_connections(self) -> None:
        """Close all of them. What has passed is delivered."""
        self._loop.call_soon_threadsafe(self._cancel_all)

    def _cancel_all(self) -> None:
        for connection in self._connections:
            connection.cancel()

    async def _listen(self, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", port)

    async def _close(self, listener: asyncio.Server) -> None:
        """What has been accepted is served first: a closed server (Python 3.11) or a cancelled task leaves it open."""
        for each in listener.sockets:
            asyncio.get_running_loop().remove_reader(each.fileno())
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            self._cancel_all()
            await asyncio.wait(tasks)
        listener.close()
        for writer in self._writers:
            writer.transport.abort()  # also if it still has bytes to send

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Not a coroutine, because a task that is cancelled before it begins cannot close its connection."""
        self._writers.add(writer)
        connection = asyncio.create_task(self._pass(Stream(reader, writer)))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _pass(self, client: Stream) -> None:
        try:
            server = Stream(*await asyncio.open_connection(*self._server))
        except OSError:
            client.writer.close()
            return
        except asyncio.CancelledError:
            client.writer.close()
            raise
        self._writers.add(server.writer)
        passing = [asyncio.create_task(direction) for direction in self._directions(client, server)]
        try:
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in passing:
                task.cancel()
            for result in await asyncio.gather(*passing, return_exceptions=True):
                if isinstance(result, Exception) and not isinstance(result, OSError | EOFError):
                    self.failures.append(result)
            for stream in (client, server):
                stream.writer.close()


async def pass_bytes(source: Stream, target: Stream) -> None:
    while data := await source.reader.read(65536):
        target.writer.write(data)
        await target.writer.drain()
