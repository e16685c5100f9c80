"""Floods from a tenant: loads that run for a time, and count the responses."""

import asyncio
import contextlib
import struct
import time

from tests.bench.loads.frames import LENGTH_BYTES
from tests.bench.loads.kafka import FrameConnection, connect, watched
from tests.bench.loads.meter import Result
from tests.support.raw_client import encode_request

PIPELINED = 500
"""Requests of a connection that are sent without waiting for a response."""
AT_ONCE = 20


def _framed(api: str, version: int, **fields: object) -> bytes:
    payload = encode_request(api, version, fields)
    return struct.pack(">i", len(payload)) + payload


class _Asker:
    """Sends the next burst of requests when the last one is answered."""

    def __init__(self, burst: list[bytes]) -> None:
        self._burst = burst
        self.answered = 0
        self.connection: FrameConnection | None = None

    def ask(self) -> None:
        if self.connection is not None:
            self.connection.write(self._burst)

    def on_frame(self, _: memoryview) -> None:
        self.answered += 1
        if self.answered % len(self._burst) == 0:
            self.ask()


async def metadata(bootstrap: str, connections: int, seconds: float) -> Result:
    """Metadata of all topics, on this number of connections."""
    burst = [_framed("Metadata", 1, topics=None)] * PIPELINED
    askers = [_Asker(burst) for _ in range(connections)]
    opened = []
    for asker in askers:
        asker.connection = await connect(bootstrap, asker.on_frame)
        opened.append(asker.connection)
        asker.ask()
    await watched(opened, asyncio.sleep(seconds))
    for connection in opened:
        connection.close()
    return {"answers_per_s": sum(asker.answered for asker in askers) / seconds}


async def connections(bootstrap: str, seconds: float) -> Result:
    """Connections that send ApiVersions and disconnect, many at the same time."""
    host, _, port = bootstrap.rpartition(":")
    ends = time.monotonic() + seconds
    request = _framed("ApiVersions", 0)

    async def come_and_go() -> int:
        count = 0
        while time.monotonic() < ends:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(request)
            await reader.readexactly(LENGTH_BYTES)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            count += 1
        return count

    counts = await asyncio.gather(*(come_and_go() for _ in range(AT_ONCE)))
    return {"connections_per_s": sum(counts) / seconds}
