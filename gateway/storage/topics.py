"""Kafka topics as Pulsar topics of one namespace: ids and configurations live in the topic's properties.

Brokers merge properties key by key, so that clients who alter different configurations at once do not undo each other.

A topic that Pulsar's own tools made has neither; its id is then derived from its name. A topic without partitions is a
Kafka topic with one.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import structlog

from gateway.pulsar.admin import AdminClient
from gateway.pulsar.admin_http import AdminError
from gateway.pulsar.admin_topics import TopicPolicy
from gateway.pulsar.errors import PulsarError
from gateway.storage import topic_names
from gateway.storage.errors import KafkaError
from gateway.storage.topic_configs import DEFAULTS, check_configs, has_policy, usable_configs, writes_messages
from gateway.storage.topic_policies import backlog_quota, policies
from protocol.kafka.errors import ErrorCode

TOPIC_ID = "kafka.topic.id"
CONFIG_PREFIX = "kafka.config."
MESSAGES_ONLY = "kafka.messages.only"
"""Property of a topic whose entries all hold messages: one that Pulsar can compact."""
COMPACTION_SUBSCRIPTION = "__compaction"
MAX_PARALLEL_REQUESTS = 16
POLICY_RETRIES = 20
_REFUSED = frozenset({400, 412})
"""How a broker says that a policy does not go with its settings."""

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
    defaults: Mapping[str, str] = field(default_factory=lambda: DEFAULTS, compare=False)
    messages_only: bool = False
    """Every entry holds messages: Pulsar can compact the topic."""
    writes_messages: bool = field(init=False, compare=False)
    """Each record becomes a Pulsar message of its own (``entry.format=pulsar``)."""
    compacts: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "writes_messages", writes_messages(self.configs))
        object.__setattr__(self, "compacts", has_policy(self.configs, "compact"))

    def pulsar_topic(self, partition: int) -> str:
        return f"{self.pulsar_name}-partition-{partition}" if self.partitioned else self.pulsar_name

    def config(self, name: str) -> str:
        return self.configs.get(name, self.defaults[name])


class TopicCatalog:
    """What is known of the namespace's topics, and how to change them. Methods raise KafkaError and PulsarError."""

    def __init__(
        self, admin: AdminClient, namespace: str, max_age_ms: int, defaults: Mapping[str, str] = DEFAULTS,
        system_namespace: str | None = None,
    ) -> None:
        """``defaults`` are those of this gateway's configuration, for every topic.

        Internal topics are in ``system_namespace``, or without one in the same namespace as all others.
        """  # fmt: skip
        self._admin = admin
        self._defaults = defaults
        self._altering = asyncio.Lock()
        self._namespace = namespace
        self._system_namespace = system_namespace or namespace
        self._prefix = f"persistent://{namespace}/"
        self.max_age_s = max_age_ms / 1000
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, str] = {}
        self._refreshing: dict[str, asyncio.Task[Topic | None]] = {}
        self._deleting: set[str] = set()
        self._listed_at = float("-inf")
        self._slots = asyncio.Semaphore(MAX_PARALLEL_REQUESTS)
        self.on_change: Callable[[str], None] = lambda name: None
        """Told the name of each topic that appeared, went or is not what it was."""

    # Looking up

    def cached(self, name: str) -> Topic | None:
        """What is known without asking; old knowledge is used, and renewed in the background."""
        topic = self._topics.get(name)
        if topic is not None and time.monotonic() - topic.loaded_at > self.max_age_s:
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
        if time.monotonic() - self._listed_at > self.max_age_s:
            names = await self.list_names()
            for gone in self._topics.keys() - names:
                self._forget(gone)
            found = await asyncio.gather(*(self.get(name) for name in names))
            self._listed_at = time.monotonic()
            return sorted((topic for topic in found if topic), key=lambda topic: topic.name)
        return sorted(self._topics.values(), key=lambda topic: topic.name)

    async def list_names(self) -> set[str]:
        """Of every topic that clients may see, asked of Pulsar."""
        partitioned, single = await asyncio.gather(
            self._admin.topics.list_partitioned(self._namespace), self._admin.topics.list_topics(self._namespace)
        )
        parts = tuple(f"{name}-partition-" for name in partitioned)
        plain = [name for name in single if not name.startswith(parts)] if parts else single
        locals_ = (name.removeprefix(self._prefix) for name in (*partitioned, *plain))
        names = {kafka_name for name in locals_ if (kafka_name := topic_names.from_pulsar(name)) is not None}
        if self._system_namespace == self._namespace:
            return names
        system = await self._admin.topics.list_partitioned(self._system_namespace)
        internal = {name.rpartition("/")[2] for name in system} & topic_names.INTERNAL_TOPICS
        return names - topic_names.INTERNAL_TOPICS | internal

    def _pulsar_name(self, name: str) -> str:
        namespace = self._system_namespace if name in topic_names.INTERNAL_TOPICS else self._namespace
        return f"persistent://{namespace}/{topic_names.to_pulsar(name)}"

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
        pulsar_name = self._pulsar_name(name)
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
        if name in self._deleting:
            return None
        return self._remember(name, pulsar_name, partitions, properties)

    def _remember(self, name: str, pulsar_name: str, partitions: int, properties: Mapping[str, str]) -> Topic:
        topic = Topic(
            name, pulsar_name, _topic_id(properties.get(TOPIC_ID), pulsar_name), max(1, partitions),
            partitions > 0, _stored_configs(name, properties), time.monotonic(), self._defaults,
            MESSAGES_ONLY in properties,
        )  # fmt: skip
        before = self._topics.get(name)
        self._topics[name] = topic
        self._by_id[topic.topic_id] = name
        if topic != before:
            self.on_change(name)
        return topic

    def forget(self, name: str) -> None:
        """Another gateway has deleted the topic; perhaps there is another one of that name by now."""
        self._forget(name)

    def _forget(self, name: str) -> None:
        topic = self._topics.pop(name, None)
        if topic is not None:
            self._by_id.pop(topic.topic_id, None)
            self.on_change(name)

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
        pulsar_name = self._pulsar_name(name)
        properties = {TOPIC_ID: str(uuid.uuid4()), **_config_properties(configs)}
        if writes_messages(configs):
            properties[MESSAGES_ONLY] = "true"
        try:
            await self._admin.topics.create_partitioned(pulsar_name, partitions, properties)
        except AdminError as error:
            if error.conflict:
                raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.") from error
            raise
        topic = self._remember(name, pulsar_name, partitions, properties)
        try:
            await self._apply_policies(replace(topic, configs={}), topic)
        except (KafkaError, PulsarError):
            await self.delete(topic)  # data would be kept for another time than was asked
            raise
        return topic

    async def alter_configs(
        self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool
    ) -> None:
        """Set a topic's configurations to what ``change`` makes of the present ones. Raises KafkaError."""
        async with self._altering:
            topic = await self.get(name, fresh=True)
            configs = check_configs(change({} if topic is None else topic.configs))
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
            altered = replace(topic, configs=configs, messages_only=await self._stays_messages_only(topic, configs))
            if altered.compacts and not topic.compacts and not altered.messages_only:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"Topic '{name}' has records that were not written for compaction, and Pulsar cannot compact them: "
                    "copy them to a topic that is created with cleanup.policy=compact.",
                )
            if not validate_only:
                await self._alter(topic, altered)

    async def _alter(self, topic: Topic, altered: Topic) -> None:
        configs = altered.configs
        await self._apply_policies(topic, altered)
        gone = [CONFIG_PREFIX + key for key in topic.configs.keys() - configs.keys()]
        if topic.messages_only and not altered.messages_only:
            gone.append(MESSAGES_ONLY)
        for key in gone:
            await self._admin.topics.remove_property(topic.pulsar_name, key)
        changed = dict(configs.items() - topic.configs.items())
        properties = _config_properties(changed)
        if altered.messages_only and not topic.messages_only:
            properties[MESSAGES_ONLY] = "true"
        if properties:
            await self._admin.topics.put_properties(topic.pulsar_name, properties)
        outdated = self._refreshing.get(topic.name)
        if outdated is not None:
            await asyncio.wait([outdated])
        self._topics[topic.name] = replace(altered, loaded_at=time.monotonic())

    async def _stays_messages_only(self, topic: Topic, configs: Mapping[str, str]) -> bool:
        """Whether Pulsar will be able to compact the topic: also one that nothing was ever written to."""
        if not writes_messages(configs):
            return False
        if topic.messages_only:
            return True
        for partition in range(topic.partitions):
            index = (await self._admin.topics.managed_ledger_properties(topic.pulsar_topic(partition))).get("index")
            stats = await self._admin.topics.internal_stats(topic.pulsar_topic(partition))
            if index not in {None, "-1"} or any(ledger.entries > 0 for ledger in stats.ledgers):
                return False
        return True

    async def delete(self, topic: Topic) -> None:
        """Pulsar takes its time, and the partitions go first: nobody is told of the topic any more while it does."""
        self._deleting.add(topic.name)
        self._forget(topic.name)
        try:
            if topic.partitioned:
                await self._admin.topics.delete_partitioned(topic.pulsar_name, force=True)
            else:
                await self._admin.topics.delete(topic.pulsar_name, force=True)
        except AdminError as error:
            if not error.not_found:
                raise
        finally:
            self._deleting.discard(topic.name)

    async def add_partitions(self, topic: Topic, count: int) -> None:
        if not topic.partitioned:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"Topic '{topic.name}' was made without partitions in Pulsar"
            )
        await self._admin.topics.update_partitions(topic.pulsar_name, count)
        await self.get(topic.name, fresh=True)

    async def _apply_policies(self, before: Topic, after: Topic) -> None:
        """Tell Pulsar what the configurations mean to it. Raises KafkaError POLICY_VIOLATION if it refuses."""
        had_quota, quota = backlog_quota(before.configs), backlog_quota(after.configs)
        if had_quota is not None and had_quota != quota:
            await self._apply_policy(after.pulsar_name, TopicPolicy.BACKLOG_QUOTA, None)
        had = policies(before.configs, before.defaults, compactable=before.messages_only)
        for policy, value in policies(after.configs, after.defaults, compactable=after.messages_only).items():
            if value != had[policy]:
                await self._apply_policy(after.pulsar_name, policy, value)
        if quota is not None and had_quota != quota:
            await self._limit_backlog(after, quota)
        if had[TopicPolicy.COMPACTION_THRESHOLD] is not None and not after.compacts:
            # The compaction cursor would hold all new data for ever.
            for partition in range(after.partitions):
                await self._drop_compaction(after.pulsar_topic(partition))

    async def _limit_backlog(self, topic: Topic, quota: object) -> None:
        """Brokers may not allow quotas, or not of this size; records are kept longer then, which is no loss."""
        try:
            await self._apply_policy(topic.pulsar_name, TopicPolicy.BACKLOG_QUOTA, quota)
        except (KafkaError, AdminError) as error:
            log.warning(
                "groups that nobody uses may hold data beyond retention.bytes", topic=topic.name, error=str(error)
            )

    async def _apply_policy(self, pulsar_name: str, policy: TopicPolicy, value: object | None) -> None:
        """The policy service of a new namespace may need a moment."""
        for attempt in range(POLICY_RETRIES):
            try:
                if value is None:
                    await self._admin.topics.remove_policy(pulsar_name, policy)
                else:
                    await self._admin.topics.set_policy(pulsar_name, policy, value)
                return
            except AdminError as error:
                if error.status in _REFUSED:
                    raise KafkaError(ErrorCode.POLICY_VIOLATION, f"Pulsar refuses {policy}={value}: {error}") from error
                if attempt == POLICY_RETRIES - 1 or not (error.retriable or error.not_found):
                    raise
                await asyncio.sleep(0.25)

    async def _drop_compaction(self, pulsar_topic: str) -> None:
        try:
            await self._admin.topics.delete_subscription(pulsar_topic, COMPACTION_SUBSCRIPTION, force=True)
        except AdminError as error:
            if not error.not_found:
                raise


def _config_properties(configs: Mapping[str, str]) -> dict[str, str]:
    return {CONFIG_PREFIX + key: value for key, value in configs.items()}


def _stored_configs(name: str, properties: Mapping[str, str]) -> Mapping[str, str]:
    stored = {
        key.removeprefix(CONFIG_PREFIX): value for key, value in properties.items() if key.startswith(CONFIG_PREFIX)
    }
    configs, unusable = usable_configs(stored)
    if unusable:
        log.warning("properties of a topic are no configurations", topic=name, configs=unusable)
    return configs


def _topic_id(stored: str | None, pulsar_name: str) -> uuid.UUID:
    try:
        return uuid.UUID(stored) if stored else uuid.uuid5(uuid.NAMESPACE_URL, pulsar_name)
    except ValueError:
        return uuid.uuid5(uuid.NAMESPACE_URL, pulsar_name)
