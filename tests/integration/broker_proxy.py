"""A broker's binary protocol behind a proxy that can leave one topic's commands unanswered."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from tests.support.tcp_proxy import Direction, Stream, TcpProxy, pass_bytes


class BrokerProxy:
    """Forwards everything except commands that name a topic of ``unserved``.

    Brokers return their own address in responses to lookups. So only lookups come here, when a log is opened.
    """

    def __init__(self, service_url: str) -> None:
        address = urlsplit(service_url)
        assert address.hostname and address.port
        self._proxy = TcpProxy((address.hostname, address.port), self._directions)
        self.unserved: set[str] = set()
        """Parts of topic names."""
        self.dropped = 0
        self.service_url = ""

    @contextmanager
    def running(self) -> Iterator[BrokerProxy]:
        with self._proxy.running() as port:
            self.service_url = f"pulsar://127.0.0.1:{port}"
            yield self

    def _directions(self, client: Stream, broker: Stream) -> tuple[Direction, Direction]:
        return self._pass_commands(client, broker), pass_bytes(broker, client)

    async def _pass_commands(self, client: Stream, broker: Stream) -> None:
        while True:
            size = await client.reader.readexactly(4)
            frame = await client.reader.readexactly(struct.unpack(">I", size)[0])
            if any(topic.encode() in frame for topic in self.unserved):
                self.dropped += 1
                continue
            broker.writer.write(size + frame)
            await broker.writer.drain()
