"""Clients that cost memory: idle connections, and consumers that send fetches and do not read the responses."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.bench.loads.frames import FetchFrames
from tests.support.raw_client import RawClient, connected

FETCH_MAX_BYTES = 50 << 20
"""Kafka's default size of a fetch response (fetch.max.bytes)."""
FETCHES = 5
SMALL_RECEIVE_BUFFER = 4096


@contextmanager
def idle_connections(bootstrap: str, count: int) -> Iterator[list[RawClient]]:
    """Connections that have sent ApiVersions once, as every client does."""
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(bootstrap)) for _ in range(count)]
        for client in clients:
            client.call("ApiVersions", 2)
        yield clients


@contextmanager
def stalled_consumers(bootstrap: str, topic: str, offsets: list[int]) -> Iterator[None]:
    """One connection for each offset, with several large fetches in flight and no response ever read."""
    frames = FetchFrames(topic, max_bytes=FETCH_MAX_BYTES, max_wait_ms=500)
    host, _, port = bootstrap.rpartition(":")
    with ExitStack() as stack:
        for offset in offsets:
            stalled = stack.enter_context(socket.socket())
            stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_RECEIVE_BUFFER)
            stalled.connect((host, int(port)))
            for number in range(FETCHES):
                stalled.sendall(frames.request(number, offset))
        yield
