"""The mirror of committed offsets with fakes around it: cursors, topics, and the committed offsets of groups."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from coordinator.group.messages import NO_OFFSET
from coordinator.topics import TopicPartition
from gateway.coordination.mirror.cursors import Cursor, Cursors, TopicCursors
from gateway.coordination.mirror.mirror import OffsetMirror
from gateway.coordination.mirror.schedule import MirrorKey
from gateway.log.registry import LogRegistry
from gateway.observability.metrics import Metrics
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position
from gateway.topics.catalog import TopicCatalog
from gateway.topics.topic_names import INTERNAL_TOPICS

TIMEOUT_S = 10.0
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class FakeCursors:
    """Positions of subscriptions, by (partition's topic, name). `failures` come first, topics in `held` wait."""

    def __init__(self) -> None:
        self.replicated = False
        self.carried_over = True
        self.offsets: dict[tuple[str, str], int] = {}
        self.bare: set[tuple[str, str]] = set()
        """Subscriptions without an offset."""
        self.bare_offset: int | None = None
        """The offset of their position."""
        self.failures: list[PulsarError] = []
        self.held: dict[str, asyncio.Event] = {}
        self.moves: list[tuple[str, str, int]] = []
        self.forgotten = 0
        self.looks: Counter[str] = Counter()
        """The number of requests for names."""
        self.reads: Counter[str] = Counter()
        self.reading = self.most_reading = 0
        self.slow_s = 0.0

    async def _wait(self, topic: str) -> None:
        if topic in self.held:
            await self.held[topic].wait()
        if self.failures:
            raise self.failures.pop(0)

    def knows(self, topic: str, name: str) -> bool:
        return any(move[:2] == (topic, name) for move in self.moves[self.forgotten :])

    def forget(self) -> None:
        self.forgotten = len(self.moves)

    def forget_topic(self, local_name: str) -> None:
        self.forget()

    async def move(self, topic: str, name: str, offset: int, log: object, found: Cursor | None) -> bool:
        self.moves.append((topic, name, offset))
        await self._wait(topic)
        self.offsets[topic, name] = offset
        self.bare.discard((topic, name))
        return self.carried_over

    async def delete(self, topic: str, name: str) -> None:
        await self._wait(topic)
        self.offsets.pop((topic, name), None)
        self.bare.discard((topic, name))

    async def names(self, topic: str) -> frozenset[str]:
        self.looks[topic] += 1
        return frozenset((await self._subscriptions(topic)).by_name)

    async def read(self, topic: str) -> TopicCursors:
        self.reads[topic] += 1
        return await self._subscriptions(topic)

    async def _subscriptions(self, topic: str) -> TopicCursors:
        self.reading += 1
        self.most_reading = max(self.most_reading, self.reading)
        await asyncio.sleep(self.slow_s)
        self.reading -= 1
        if self.failures:
            raise self.failures.pop(0)
        mine = {name: offset for (where, name), offset in self.offsets.items() if where == topic}
        bare = {name: Cursor(Position(1, -1), None) for where, name in self.bare if where == topic}
        return TopicCursors(bare | {name: Cursor(Position(1, offset), offset) for name, offset in mine.items()}, ())

    async def offset_at(self, topic: str, cursors: TopicCursors, cursor: Cursor) -> int | None:
        return self.bare_offset if cursor.offset is None else cursor.offset


class FakeTopics:
    """The topic `t` as this gateway knows it, and as Pulsar has it."""

    def __init__(self) -> None:
        self.known_id: uuid.UUID | None = uuid.uuid4()
        self.stored_id = self.known_id

    def create_again(self) -> None:
        self.known_id = self.stored_id = uuid.uuid4()

    async def get(self, name: str, *, fresh: bool = False) -> Any:
        topic_id = self.stored_id if fresh else self.known_id
        if name not in {"t", *INTERNAL_TOPICS} or topic_id is None:
            return None
        return SimpleNamespace(partitions=999, topic_id=topic_id, pulsar_topic=lambda number: f"{name}-{number}")


class Harness:
    def __init__(self, cursors: FakeCursors | None = None) -> None:
        self.cursors = cursors or FakeCursors()
        self.topics = FakeTopics()
        self.committed: dict[MirrorKey, int | None] = {}
        self.metrics = Metrics()
        logs = SimpleNamespace(find=lambda topic, partition: None)
        self.mirror = OffsetMirror(
            cast(Cursors, self.cursors),
            cast(TopicCatalog, self.topics),
            cast(LogRegistry, logs),
            lambda key: self.committed.get(key, NO_OFFSET),
            self.metrics,
            lambda: int(time.monotonic() * 1000),
        )

    def commit(self, group: str, partition: TopicPartition, offset: int | None) -> None:
        self.committed[MirrorKey(group, partition)] = offset
        self.mirror.offsets_changed(group, {partition: None if offset == NO_OFFSET else offset})

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                await asyncio.sleep(0.001)

    async def until_mirrored(self) -> None:
        await self.until(lambda: self.value("mirror_pending") == 0)

    def value(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"kafka_gateway_{name}", labels) or 0
