"""Kafka topics as Pulsar topics of one namespace: ids and configurations live in the topic's properties.

A topic that Pulsar's own tools made has neither; its id is then derived from its name. A topic without partitions is a
Kafka topic with one.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from gateway.pulsar.admin import AdminClient
from gateway.pulsar.admin_http import AdminError
from gateway.pulsar.admin_topics import TopicPolicy
from gateway.storage import topic_names
from gateway.storage.errors import KafkaError
from gateway.storage.topic_configs import TOPIC_CONFIGS
from protocol.kafka.errors import ErrorCode

TOPIC_ID = "kafka.topic.id"
CONFIG_PREFIX = "kafka.config."
MAX_PARALLEL_REQUESTS = 16
POLICY_RETRIES = 20
_MINUTE_MS = 60_000
_MIB = 1024 * 1024

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as it was ``loaded_at`` (monotonic seconds)."""

    name: str
    pulsar_name: str
    topic_id: uuid.UUID
    partitions: int
    partitioned: bool
    configs: Mapping[str, str]
    loaded_at: float = field(compare=False)

    def pulsar_topic(self, partition: int) -> str:
        return f"{self.pulsar_name}-partition-{partition}" if self.partitioned else self.pulsar_name

    def config(self, name: str) -> str:
        return self.configs.get(name, TOPIC_CONFIGS[name].default)


class TopicCatalog:
    """What is known of the namespace's topics, and how to change them. Methods raise KafkaError and PulsarError."""

    def __init__(self, admin: AdminClient, namespace: str, max_age_ms: int) -> None:
        self._admin = admin
        self._namespace = namespace
        self._prefix = f"persistent://{namespace}/"
        self._max_age_s = max_age_ms / 1000
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, str] = {}
        self._refreshing: dict[str, asyncio.Task[Topic | None]] = {}
        self._listed_at = float("-inf")
        self._slots = asyncio.Semaphore(MAX_PARALLEL_REQUESTS)

    # Looking up

    def cached(self, name: str) -> Topic | None:
        """What is known without asking; old knowledge is used, and renewed in the background."""
        topic = self._topics.get(name)
        if topic is not None and time.monotonic() - topic.loaded_at > self._max_age_s:
            self._refresh(name)
        return topic

    def cached_name(self, topic_id: uuid.UUID | None) -> str | None:
        return None if topic_id is None else self._by_id.get(topic_id)

    async def get(self, name: str, *, fresh: bool = False) -> Topic | None:
        """The topic, or None if there is no such topic."""
        topic = None if fresh else self.cached(name)
        if topic is not None:
            return topic
        if topic_names.invalid_reason(name) is not None:
            return None
        return await asyncio.shield(self._refresh(name))

    async def get_by_id(self, topic_id: uuid.UUID | None) -> Topic | None:
        name = self.cached_name(topic_id)
        if name is None:
            await self.all()
            name = self.cached_name(topic_id)
        return None if name is None else await self.get(name)

    async def all(self) -> list[Topic]:
        """Every topic that clients may see, by name."""
        if time.monotonic() - self._listed_at > self._max_age_s:
            names = await self._list_names()
            for gone in self._topics.keys() - names:
                self._forget(gone)
            found = await asyncio.gather(*(self.get(name) for name in names))
            self._listed_at = time.monotonic()
            return sorted((topic for topic in found if topic), key=lambda topic: topic.name)
        return sorted(self._topics.values(), key=lambda topic: topic.name)

    async def _list_names(self) -> set[str]:
        partitioned, single = await asyncio.gather(
            self._admin.topics.list_partitioned(self._namespace), self._admin.topics.list_topics(self._namespace)
        )
        parts = tuple(f"{name}-partition-" for name in partitioned)
        plain = [name for name in single if not name.startswith(parts)] if parts else single
        locals_ = (name.removeprefix(self._prefix) for name in (*partitioned, *plain))
        return {kafka_name for name in locals_ if (kafka_name := topic_names.from_pulsar(name)) is not None}

    def _refresh(self, name: str) -> asyncio.Task[Topic | None]:
        task = self._refreshing.get(name)
        if task is None:
            task = self._refreshing[name] = asyncio.create_task(self._load(name))
            task.add_done_callback(lambda done: self._refreshed(name, done))
        return task

    def _refreshed(self, name: str, task: asyncio.Task[Topic | None]) -> None:
        self._refreshing.pop(name, None)
        if not task.cancelled() and task.exception() is not None:
            log.warning("cannot look up topic", topic=name, error=str(task.exception()))

    async def _load(self, name: str) -> Topic | None:
        pulsar_name = self._prefix + topic_names.to_pulsar(name)
        async with self._slots:
            try:
                found = await self._admin.topics.partitioned(pulsar_name)
                partitions, properties = found.partitions, found.properties
                if partitions == 0:
                    properties = await self._admin.topics.properties(pulsar_name)
            except AdminError as error:
                if not error.not_found:
                    raise
                self._forget(name)
                return None
        return self._remember(name, pulsar_name, partitions, properties)

    def _remember(self, name: str, pulsar_name: str, partitions: int, properties: Mapping[str, str]) -> Topic:
        configs = {
            key.removeprefix(CONFIG_PREFIX): value for key, value in properties.items() if key.startswith(CONFIG_PREFIX)
        }
        topic = Topic(
            name, pulsar_name, _topic_id(properties.get(TOPIC_ID), pulsar_name), max(1, partitions),
            partitions > 0, configs, time.monotonic(),
        )  # fmt: skip
        self._topics[name] = topic
        self._by_id[topic.topic_id] = name
        return topic

    def _forget(self, name: str) -> None:
        topic = self._topics.pop(name, None)
        if topic is not None:
            self._by_id.pop(topic.topic_id, None)

    async def stored_bytes(self, topic: Topic, partition: int) -> int:
        """What Pulsar keeps of the partition, once."""
        async with self._slots:
            stats = await self._admin.topics.internal_stats(topic.pulsar_topic(partition))
        return sum(ledger.size_bytes for ledger in stats.ledgers)

    # Changing

    async def check_creatable(self, name: str) -> None:
        """Raises KafkaError INVALID_TOPIC_EXCEPTION or TOPIC_ALREADY_EXISTS."""
        reason = topic_names.invalid_reason(name)
        if reason is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
        if await self.get(name, fresh=True) is not None:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        key = topic_names.collision_key(name)
        for other in self._topics:
            if topic_names.collision_key(other) == key:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
                )

    async def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        await self.check_creatable(name)
        pulsar_name = self._prefix + topic_names.to_pulsar(name)
        properties = {TOPIC_ID: str(uuid.uuid4()), **{CONFIG_PREFIX + key: value for key, value in configs.items()}}
        try:
            await self._admin.topics.create_partitioned(pulsar_name, partitions, properties)
        except AdminError as error:
            if error.conflict:
                raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.") from error
            raise
        topic = self._remember(name, pulsar_name, partitions, properties)
        await self._apply_policies(topic)
        return topic

    async def delete(self, topic: Topic) -> None:
        try:
            if topic.partitioned:
                await self._admin.topics.delete_partitioned(topic.pulsar_name, force=True)
            else:
                await self._admin.topics.delete(topic.pulsar_name, force=True)
        except AdminError as error:
            if not error.not_found:
                raise
        self._forget(topic.name)

    async def add_partitions(self, topic: Topic, count: int) -> None:
        if not topic.partitioned:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"Topic '{topic.name}' was made without partitions in Pulsar"
            )
        await self._admin.topics.update_partitions(topic.pulsar_name, count)
        await self.get(topic.name, fresh=True)

    async def _apply_policies(self, topic: Topic) -> None:
        """Retention as Pulsar does it. The policy service of a new namespace may need a moment."""
        retention = _retention_policy(topic)
        if retention is None:
            return
        for attempt in range(POLICY_RETRIES):
            try:
                await self._admin.topics.set_policy(topic.pulsar_name, TopicPolicy.RETENTION, retention)
                return
            except AdminError as error:
                if attempt == POLICY_RETRIES - 1 or not (error.retriable or error.not_found):
                    raise
                await asyncio.sleep(0.25)


def _retention_policy(topic: Topic) -> dict[str, int] | None:
    """Whole minutes and MiB, rounded up: Pulsar knows nothing finer."""
    if not {"retention.ms", "retention.bytes"} & topic.configs.keys():
        return None
    retention_ms, retention_bytes = int(topic.config("retention.ms")), int(topic.config("retention.bytes"))
    return {
        "retentionTimeInMinutes": -1 if retention_ms < 0 else -(-retention_ms // _MINUTE_MS),
        "retentionSizeInMB": -1 if retention_bytes < 0 else -(-retention_bytes // _MIB),
    }


def _topic_id(stored: str | None, pulsar_name: str) -> uuid.UUID:
    try:
        return uuid.UUID(stored) if stored else uuid.uuid5(uuid.NAMESPACE_URL, pulsar_name)
    except ValueError:
        return uuid.uuid5(uuid.NAMESPACE_URL, pulsar_name)
