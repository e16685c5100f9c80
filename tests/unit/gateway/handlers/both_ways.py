"""Two gateways without sockets (`tests.bench.inside.scene`): one has the fast path of an API, and one does not."""

from __future__ import annotations

import math
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from gateway.handlers.groups.known_commit import KnownCommits
from gateway.handlers.place import Place
from gateway.handlers.records.known_fetch import KnownFetches
from gateway.handlers.records.known_produce import KnownProduces
from gateway.log.partition_log import PartitionLog
from gateway.network import turns
from gateway.requests.context import RequestContext
from protocol.pulsar.frames import parse_message
from protocol.pulsar.pulsar_commands_pb2 import BaseCommand, CommandSend, CommandSendError, ServerError
from tests.bench.inside.broker import FakeBroker
from tests.bench.inside.scene import SINGLE_ADDRESS, Scene

TOPIC, OTHER = "topic", "another-topic"
SECTIONS: dict[str, dict[str, Any]] = {"own address": {}, "single address": SINGLE_ADDRESS}
"""The gateway leads everything, so it forwards nothing."""
KnownRequests = type[KnownProduces] | type[KnownFetches] | type[KnownCommits]


class Broker(FakeBroker):
    """Keeps the entries that it has written, and refuses entries while the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.payloads = b""
        """Payloads of all entries: which batches share an entry depends on the speed of this machine."""
        self.error: ServerError | None = None

    def take(self, send: CommandSend, frame: memoryview, end: int) -> BaseCommand:
        if self.error is not None:
            refused = CommandSendError(
                producer_id=send.producer_id, sequence_id=send.sequence_id, error=self.error, message="no"
            )  # fmt: skip
            return BaseCommand(type=BaseCommand.SEND_ERROR, send_error=refused)
        self.payloads += bytes(parse_message(frame, end).payload)
        return super().take(send, frame, end)


class Way:
    """A gateway of its own, and one connection to it."""

    def __init__(self, sections: dict[str, Any] | None = None) -> None:
        self.broker = Broker()
        self.scene = Scene(self.broker, **(sections or {}))
        for name in (TOPIC, OTHER):
            self.scene.add_topic(name)
        # However long a test takes, a topic is not looked up again: the request's batches would wait for that.
        self.scene.cluster.topics.max_age_s = math.inf
        self.client = self.scene.connect()

    def log(self, topic: str = TOPIC) -> PartitionLog:
        found = self.scene.cluster.logs.find(topic, 0)
        assert found is not None
        return found

    def configure(self, **configs: str) -> None:
        """Set the topic's configuration."""
        topics = self.scene.cluster.topics._topics
        named = {name.replace("_", "."): value for name, value in configs.items()}
        topics[TOPIC] = replace(topics[TOPIC], configs=named)

    def reconnect(self) -> None:
        self.client = self.scene.connect()

    async def answers(self, *frames: bytes) -> list[bytes]:
        """Responses, one after the other; empty where there is none."""
        found = []
        for frame in frames or (b"",):
            self.client.ask(frame)
            await self.scene.until_answered([self.client])
            found.append(b"".join(map(bytes, self.client.received)))
            self.client.received.clear()
            if self.client.closed:
                return [*found, b"closed"]
        return found


class BothWays:
    """Two gateways; one of them has no fast path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, known: KnownRequests, sections: dict[str, Any]) -> None:
        """`sections` are those of their configuration, for example `SECTIONS`."""
        monkeypatch.setattr(turns, "SLICE_S", math.inf)  # a busy machine would let only one of them run all requests
        self.general, self.straight = Way(sections), Way(sections)
        self.taken = 0
        """The number of requests that took the fast path."""
        self._is_straight = False
        real = known.handle

        def handle(own: Any, frame: bytearray, context: RequestContext, place: Place) -> bool:
            taken = self._is_straight and real(own, frame, context, place)
            self.taken += taken
            return taken

        monkeypatch.setattr(known, "handle", handle)

    async def ask(self, *frames: bytes) -> list[bytes]:
        """The responses, which are the same for both ways."""
        return await self.run(lambda way: way.answers(*frames))

    async def run(self, run: Callable[[Way], Awaitable[list[bytes]]]) -> list[bytes]:
        expected = await run(self.general)
        self._is_straight = True
        found = await run(self.straight)
        self._is_straight = False
        assert found == expected
        assert self.straight.broker.payloads == self.general.broker.payloads
        return found

    @property
    def topic_id(self) -> uuid.UUID:
        """The same in both gateways: it is derived from the name."""
        topic = self.general.scene.cluster.topics.cached(TOPIC)
        assert topic is not None
        return topic.topic_id

    def each(self, change: Callable[[Way], None]) -> None:
        change(self.general)
        change(self.straight)
