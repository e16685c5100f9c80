"""Connections to other gateways, over which one passes on what its clients want of another: Kafka's protocol.

A client has a connection of its own to each leader that it needs, so the leader treats it as if it had come itself: by
its name (a PROXY header comes first), in its order, and only for as long as it stays. Two things differ from a client's
connection: answers come as soon as they are ready, not in the order of the requests, and nothing is passed on again.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

import structlog

from coordinator.fleet.messages import Member
from gateway.fleet.fleet import Fleet
from protocol.kafka.codec import Buffer
from protocol.proxy.header import Endpoint, encode_proxy_header

CONNECT_S = 2.0
SILENCE_MS = 5_000
"""A peer whose machine acknowledges nothing for so long is gone; whether its process works, the fleet's log tells."""
READ_BUFFER_BYTES = 1024 * 1024
WRITE_HIGH_BYTES = 4 * 1024 * 1024
LENGTH_BYTES = CORRELATION_ID_BYTES = 4

log = structlog.get_logger()


class PeerLink:
    """One client's connection to one leader. Lost, it stays so."""

    def __init__(self, member: Member, client_address: str, on_lost: Callable[[PeerLink], None]) -> None:
        self.member = member
        self.unanswered = False
        """It has carried a request that has no answer, and whose loss nobody would notice otherwise."""
        self.failure: str | None = None
        """Why it was lost."""
        self._client_address = client_address
        self._on_lost = on_lost
        self._answers: dict[int, asyncio.Future[memoryview | None]] = {}
        self._last_id = 0
        self._writer: asyncio.StreamWriter | None = None
        self._connected = asyncio.Event()
        self._lost = False
        self._running = asyncio.create_task(self._run())

    async def ready(self) -> bool:
        """Connected, and with room for more; False if it is lost."""
        await self._connected.wait()
        if self._writer is not None and not self._lost:
            with contextlib.suppress(ConnectionError):
                await self._writer.drain()
        return not self._lost

    def send(self, encode: Callable[[int], list[Buffer]]) -> asyncio.Future[memoryview | None]:
        """The answer's frame behind its length; None when the peer was lost before. `encode` gets a correlation id."""
        answer: asyncio.Future[memoryview | None] = asyncio.get_running_loop().create_future()
        if self._write(encode):
            self._answers[self._last_id] = answer
        else:
            answer.set_result(None)
        return answer

    def send_unanswered(self, encode: Callable[[int], list[Buffer]]) -> bool:
        """A request that has no answer; False if it cannot be sent."""
        self.unanswered = True
        return self._write(encode)

    def _write(self, encode: Callable[[int], list[Buffer]]) -> bool:
        if self._lost or self._writer is None:
            return False
        self._last_id = (self._last_id + 1) % 2**31
        self._writer.writelines(encode(self._last_id))
        return True

    def close(self) -> None:
        self._running.cancel()
        self._end()

    async def _run(self) -> None:
        try:
            await self._read(await self._connect())
        except (OSError, TimeoutError, asyncio.IncompleteReadError, KeyError) as error:
            self.failure = str(error) or type(error).__name__
        finally:
            self._end()

    async def _connect(self) -> asyncio.StreamReader:
        address = self.member.forwarding
        if address is None:
            raise ConnectionError("it has no [fleet.forwarding]")
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(address.host, address.port, limit=READ_BUFFER_BYTES)
        writer.transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        _detect_silence(writer.get_extra_info("socket"))
        host, _, port = self._client_address.rpartition(":")
        writer.write(encode_proxy_header(Endpoint(host, int(port or 0))))
        self._writer = writer
        self._connected.set()
        return reader

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while True:
            length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
            frame = memoryview(await reader.readexactly(length))
            answer = self._answers.pop(int.from_bytes(frame[:CORRELATION_ID_BYTES], "big"))
            if not answer.done():
                answer.set_result(frame)

    def _end(self) -> None:
        if self._lost:
            return
        self._lost = True
        self._connected.set()
        if self._writer is not None:
            self._writer.close()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result(None)
        self._answers.clear()
        self._on_lost(self)


def _detect_silence(connection: socket.socket) -> None:
    """Both while something is sent, and while an answer is waited for."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    with contextlib.suppress(AttributeError):  # not every system has these
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MS)


class Peers:
    """Opens the links of all clients, and closes those to members that are no more."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._links: set[PeerLink] = set()
        self._failing: set[Member] = set()
        """Said to be so; clients try again all the time."""
        fleet.on_change.append(self._close_dead)

    def open(self, member: Member, client_address: str, on_lost: Callable[[PeerLink], None]) -> PeerLink:
        def forget(link: PeerLink) -> None:
            self._links.discard(link)
            self._complain(link)
            on_lost(link)

        link = PeerLink(member, client_address, forget)
        self._links.add(link)
        return link

    def _complain(self, link: PeerLink) -> None:
        """A member that does not answer is dead, and soon evicted; or cannot be reached, and somebody has to know."""
        if link.failure is not None and link.member not in self._failing and self._fleet.holds(link.member):
            self._failing.add(link.member)
            log.warning("connection to another gateway failed", node_id=link.member.node_id, error=link.failure)

    def _close_dead(self) -> None:
        self._failing = {member for member in self._failing if self._fleet.holds(member)}
        for link in tuple(self._links):
            if not self._fleet.holds(link.member):
                link.close()
