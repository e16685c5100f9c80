"""A gateway's groups without a gateway: internal topics in memory, a fleet and a catalog under the test's control."""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.fleet.leadership import PartitionRole
from coordinator.group.messages import CommitRequest, CommitResponse, OffsetToCommit
from coordinator.topics import DeletedTopic, TopicPartition
from gateway.config.gateway_config import GroupsSection
from gateway.coordination.groups.group_service import GroupService
from gateway.coordination.partition import coordinator_partitions
from gateway.coordination.partition.coordinators import partition_of
from gateway.observability.metrics import Metrics
from gateway.pulsar.errors import PulsarError
from gateway.topics.topic import Topic
from gateway.topics.topic_names import CONSUMER_OFFSETS
from protocol.kafka.errors import ErrorCode
from tests.unit.gateway.coordination.partition.fake_internal_topic import FakeInternalTopic

PARTITIONS = 2
TIMEOUT_S = 10.0


def group_in(partition: int) -> str:
    return next(name for name in map(str, range(100)) if partition_of(name, PARTITIONS) == partition)


class FakeFleet:
    def __init__(self) -> None:
        self.placed = set(range(PARTITIONS))
        self.holds_lease = True
        self.announced: list[DeletedTopic] = []

    def leads(self, topic: str, partition: int) -> bool:
        return partition in self.placed

    def role(self, topic: str, partition: int) -> PartitionRole:
        if partition not in self.placed:
            return PartitionRole.ELSEWHERE
        return PartitionRole.LEADING if self.holds_lease else PartitionRole.WITHOUT_LEASE

    async def ask_to_stop(self, topic: str) -> None:
        """There are no other gateways."""

    def announce_deletion(self, topic: DeletedTopic) -> None:
        self.announced.append(topic)


class FakeCatalog:
    """`known` is the result of earlier lookups, `present` the state of Pulsar; the test fills both."""

    max_age_s = 3_600.0

    def __init__(self) -> None:
        self.present: dict[str, Topic] = {}
        self.known: dict[str, Topic] = {}
        self.failures: list[PulsarError] = []
        self.lookups = 0
        self.asked: list[str] = []
        """The names that were requested with fresh=True."""

    def add(self, name: str, partitions: int = 1) -> Topic:
        topic = Topic(name, f"persistent://t/n/{name}", uuid.uuid4(), partitions, True, {}, 0.0)
        self.present[name] = self.known[name] = topic
        return topic

    def cached(self, name: str) -> Topic | None:
        self.asked.append(name)
        return self.known.get(name)

    def cached_name(self, topic_id: uuid.UUID | None) -> str | None:
        return next((topic.name for topic in self.known.values() if topic.topic_id == topic_id), None)

    async def get(self, name: str, *, fresh: bool = False) -> Topic | None:
        if not fresh and name in self.known:
            return self.known[name]
        self.lookups += 1
        if self.failures:
            raise self.failures.pop(0)
        if name not in self.present:
            self.known.pop(name, None)
            return None
        self.known[name] = self.present[name]
        return self.known[name]

    async def read(self, name: str) -> Topic | None:
        return await self.get(name, fresh=True)

    async def list_names(self) -> set[str]:
        return {*self.present}


class FakeClient:
    """Internal topics by name."""

    def __init__(self) -> None:
        self.topics: defaultdict[str, FakeInternalTopic] = defaultdict(FakeInternalTopic)

    async def open_producer(self, topic: str, *args: Any, **options: Any) -> Any:
        return await self.topics[topic].open_producer(topic, *args, **options)

    async def open_reader(self, topic: str, *args: Any, **options: Any) -> Any:
        return await self.topics[topic].open_reader(topic, *args, **options)

    async def internal_stats(self, topic: str) -> Any:
        return await self.topics[topic].internal_stats(topic)


class Scene:
    def __init__(self) -> None:
        self.fleet, self.catalog, self.client = FakeFleet(), FakeCatalog(), FakeClient()
        self.metrics = Metrics()
        self.offsets_topic = self.catalog.add(CONSUMER_OFFSETS, PARTITIONS)
        self.service = self.new_service()

    def new_service(self) -> GroupService:
        async def partitioned(name: str) -> Any:
            return SimpleNamespace(properties={})

        parts: dict[str, Any] = {
            "client": self.client,
            "admin": SimpleNamespace(
                topics=SimpleNamespace(partitioned=partitioned, internal_stats=self.client.internal_stats)
            ),
            "topics": self.catalog,
            "fleet": self.fleet,
            "logs": None,
        }
        return GroupService(config=GroupsSection(mirror=False), metrics=Metrics(), **parts)

    async def commit(self, group: str, topic: Topic, offset: int) -> ErrorCode:
        partition = TopicPartition(topic.name, 0)
        request = CommitRequest(group, {partition: OffsetToCommit(offset, topic_id=topic.topic_id.bytes)})

        def answer(errors: CommitResponse) -> ErrorCode:
            return errors[partition]

        asked = self.service.coordinators.ask(
            group, lambda coordinator, now_ms, reply: coordinator.commit_offsets(request, now_ms, reply), answer
        )
        return cast(ErrorCode, await asyncio.wait_for(asked, TIMEOUT_S))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                await asyncio.sleep(0)

    def committed(self, group: str, topic: str) -> int | None:
        committed = self.service.coordinators.run(group, lambda coordinator, now_ms: coordinator.committed(group))
        value = committed.get(TopicPartition(topic, 0))
        return None if value is None else value.offset


@asynccontextmanager
async def group_scene(monkeypatch: pytest.MonkeyPatch, *, start: bool = True) -> AsyncIterator[Scene]:
    scene = Scene()

    async def prepared(*args: Any) -> Topic:
        return scene.offsets_topic

    monkeypatch.setattr(coordinator_partitions, "prepare_internal_topic", prepared)
    if start:
        await scene.service.start()
    try:
        yield scene
    finally:
        await scene.service.stop()
