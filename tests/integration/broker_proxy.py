"""A broker's binary protocol behind proxies: one leaves a topic's commands unanswered, one loses connections,
one is slow."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self
from urllib.parse import urlsplit

from protocol.pulsar.pulsar_commands_pb2 import BaseCommand
from tests.support.tcp_proxy import Direction, Stream, TcpProxy, pass_bytes

BEFORE_CLOSING_S = 0.2
"""The client of a broken connection goes on sending for this time."""
BEFORE_USE_S = 0.1
"""A gateway has opened a producer within this time, and still waits before it uses it in place of a lost one."""

LATE_S = 2.0


class _Proxy:
    """Between gateways and a broker. What it passes is decided by ``_directions``."""

    def __init__(self, service_url: str) -> None:
        address = urlsplit(service_url)
        assert address.hostname and address.port
        self._proxy = TcpProxy((address.hostname, address.port), self._directions)
        self.service_url = ""

    @contextmanager
    def running(self) -> Iterator[Self]:
        with self._proxy.running() as port:
            self.service_url = f"pulsar://127.0.0.1:{port}"
            yield self

    def lose_connections(self) -> None:
        self._proxy.lose_connections()

    def _directions(self, client: Stream, broker: Stream) -> tuple[Direction, Direction]:
        raise NotImplementedError

    async def _read_frame(self, source: Stream) -> tuple[bytes, bytes]:
        """The length, and what follows it."""
        size = await source.reader.readexactly(4)
        return size, await source.reader.readexactly(struct.unpack(">I", size)[0])


class BrokerProxy(_Proxy):
    """Forwards everything except commands that name a topic of ``unserved``.

    Brokers return their own address in responses to lookups. So only lookups come here, when a log is opened.
    """

    def __init__(self, service_url: str) -> None:
        super().__init__(service_url)
        self.unserved: set[str] = set()
        """Parts of topic names."""
        self.dropped = 0

    def _directions(self, client: Stream, broker: Stream) -> tuple[Direction, Direction]:
        return self._pass_commands(client, broker), pass_bytes(broker, client)

    async def _pass_commands(self, client: Stream, broker: Stream) -> None:
        while True:
            size, frame = await self._read_frame(client)
            if any(topic.encode() in frame for topic in self.unserved):
                self.dropped += 1
                continue
            broker.writer.write(size + frame)
            await broker.writer.drain()


class LosingBrokerProxy(_Proxy):
    """Forwards everything, on all connections. A frame can be lost: what was sent after it is lost, too, and then its
    connection is closed."""

    def __init__(self, service_url: str) -> None:
        super().__init__(service_url)
        self.losing = b""
        """The next frame with these bytes is lost, with its connection. Then it is empty again: nothing is lost."""
        self.losing_producers = 0
        """So many connections are lost, too, each after the next producer was opened on it, and before it is used."""

    def _directions(self, client: Stream, broker: Stream) -> tuple[Direction, Direction]:
        return self._pass_commands(client, broker), self._pass_answers(broker, client)

    async def _pass_commands(self, client: Stream, broker: Stream) -> None:
        while True:
            size, frame = await self._read_frame(client)
            if self.losing and self.losing in frame:
                await asyncio.sleep(BEFORE_CLOSING_S)
                self.losing = b""
                return
            broker.writer.write(size + frame)
            await broker.writer.drain()
            if self.losing_producers and not self.losing and _opens_producer(frame):
                self.losing_producers -= 1
                await asyncio.sleep(BEFORE_USE_S)
                return

    async def _pass_answers(self, broker: Stream, client: Stream) -> None:
        """Responses to lookups name the proxy."""
        while True:
            size, frame = await self._read_frame(broker)
            command_bytes = struct.unpack_from(">I", frame)[0]
            command = BaseCommand.FromString(frame[4 : 4 + command_bytes])
            if command.type == BaseCommand.LOOKUP_RESPONSE and command.lookup_topic_response.broker_service_url:
                command.lookup_topic_response.broker_service_url = self.service_url
                data = command.SerializeToString()
                size, frame = struct.pack(">I", 4 + len(data)), struct.pack(">I", len(data)) + data
            client.writer.write(size + frame)
            await client.writer.drain()


class SlowBrokerProxy(LosingBrokerProxy):
    """Some commands and answers come late, and with them all that follow on their connection."""

    late_share = 0.005
    chance = random.Random()

    async def _read_frame(self, source: Stream) -> tuple[bytes, bytes]:
        found = await super()._read_frame(source)
        if self.chance.random() < self.late_share:
            await asyncio.sleep(self.chance.uniform(0, LATE_S))
        return found


def _opens_producer(frame: bytes) -> bool:
    return BaseCommand.FromString(frame[4 : 4 + struct.unpack_from(">I", frame)[0]]).type == BaseCommand.PRODUCER
