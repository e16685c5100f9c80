"""Connections of clients that do everything wrong: many at the same time to a running gateway, all from one seed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random

from tests.fuzz.mutation import Mutator
from tests.fuzz.targets.requests import TARGETS

AT_ONCE = 40
ANSWER_S = 0.05
"""The time that an attacker waits for a response before it continues."""
CONNECT_S = 30.0
READ_BYTES = 64 * 1024
UNREAD_REQUESTS = 300

Attack = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


class Attacks:
    """Each is one connection."""

    def __init__(
        self, seed: int, address: tuple[str, int], proxied: tuple[str, int], *, only_whole: bool = False
    ) -> None:
        """`proxied` is a listener that requires a PROXY header. `only_whole`: no request is damaged."""
        self.made: Counter[str] = Counter()
        self._random = Random(seed)
        self._mutator = Mutator(self._random)
        self._address, self._proxied = address, proxied
        requests, proxy_headers = TARGETS[0], TARGETS[3]
        self._requests = requests.seeds(self._random)
        self._proxy_headers = proxy_headers.seeds(self._random)
        self._kinds: tuple[Attack, ...] = (
            self.damaged_requests, self.damaged_requests, self.whole_requests, self.requests_then_garbage,
            self.cut_off, self.wrong_length, self.huge_length, self.slow_bytes, self.random_bytes, self.nothing,
            self.half_closed, self.unread_answers,
        )  # fmt: skip
        if only_whole:
            self._kinds = (self.whole_requests, self.half_closed)

    async def run(self, connections: int, is_over: Callable[[], bool]) -> None:
        """Ends early when `is_over`."""
        left = connections

        async def one_after_the_other() -> None:
            nonlocal left
            while left > 0 and not is_over():
                left -= 1
                await self._one()

        await asyncio.gather(*(one_after_the_other() for _ in range(AT_ONCE)))

    async def _one(self) -> None:
        with_header = self._random.random() < 0.1
        attack = self.proxy_garbage if with_header else self._random.choice(self._kinds)
        self.made[attack.__name__] += 1
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(*(self._proxied if with_header else self._address))
        try:
            # The gateway may close at any time.
            with contextlib.suppress(OSError):
                await attack(reader, writer)
        finally:
            self._leave(writer)

    def _leave(self, writer: asyncio.StreamWriter) -> None:
        if self._random.getrandbits(1):  # with a reset
            connection = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async def _look(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                await reader.read(READ_BYTES)

    def _request(self) -> bytes:
        return self._random.choice(self._requests)

    def _damaged(self) -> bytes:
        return bytes(self._mutator.mutate(self._request(), self._requests))

    # The attacks

    async def damaged_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(self._random.randint(1, 4)):
            writer.write(framed(self._damaged()))
            await self._look(reader)

    async def whole_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """For topics and groups that mostly do not exist, with meaningless values."""
        writer.write(b"".join(framed(self._request()) for _ in range(self._random.randint(1, 4))))
        await self._look(reader)

    async def requests_then_garbage(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = [framed(self._damaged() if self._random.getrandbits(1) else self._request()) for _ in range(10)]
        writer.write(b"".join(frames) + self._random.randbytes(50))
        await self._look(reader)

    async def cut_off(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frame = framed(self._request())
        writer.write(frame[: self._random.randrange(len(frame))])
        if self._random.getrandbits(1):
            writer.write_eof()
        await self._look(reader)

    async def wrong_length(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = self._request()
        length = self._random.choice([0, -1, 1, 7, len(request) - 1, len(request) + 1, -(2**31), 3])
        writer.write(struct.pack(">i", length) + request + framed(self._request()))
        await self._look(reader)

    async def huge_length(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = self._random.choice([2**31 - 1, 100 << 20, (100 << 20) - 1, 4 << 20, 70_000])
        writer.write(struct.pack(">i", length) + self._request() * self._random.randint(0, 300))
        await self._look(reader)

    async def slow_bytes(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in framed(self._damaged())[:40]:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.002)
        await self._look(reader)

    async def random_bytes(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tls = b"\x16\x03\x01\x02\x00\x01"
        start = self._random.choice([b"", b"GET / HTTP/1.1\r\n\r\n", tls, b"\0\0\1\0", b"PROXY "])
        writer.write(start + self._random.randbytes(self._random.randint(0, 2_000)))
        await self._look(reader)

    async def nothing(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._random.getrandbits(1):
            writer.write_eof()

    async def half_closed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(framed(self._request()) * self._random.randint(1, 20))
        writer.write_eof()
        await self._look(reader)

    async def unread_answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Metadata, Fetch or other requests, repeatedly."""
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(framed(self._request()) * UNREAD_REQUESTS)
        await asyncio.sleep(ANSWER_S)

    async def proxy_garbage(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header = self._random.choice(self._proxy_headers)
        if self._random.random() < 0.8:
            header = bytes(self._mutator.mutate(header, self._proxy_headers))
        data = header + framed(self._request())
        cut = self._random.randrange(len(data))
        writer.write(data[:cut])
        await asyncio.sleep(0.001)
        writer.write(data[cut:])
        await self._look(reader)
