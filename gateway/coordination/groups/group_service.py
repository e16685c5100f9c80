"""Consumer groups of this gateway: their coordinators, and the services that these need besides their log."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping, Set

from coordinator.group.config import GroupConfig
from coordinator.group.coordinator import GroupCoordinator
from coordinator.group.group import GroupSubscription
from coordinator.group.messages import FetchOffsetsRequest
from coordinator.group.ports import GroupTopicPartition
from coordinator.log import Log
from coordinator.topics import DeletedTopic, TopicPartition
from gateway.background import TaskGroup
from gateway.config.gateway_config import GroupsSection
from gateway.coordination.group_partition import BARRIER, GroupPartition
from gateway.coordination.groups.group_configs import GroupConfigs
from gateway.coordination.groups.group_lag import EndOffsets, GroupLag
from gateway.coordination.groups.subscribed_topics import SubscribedTopics, Subscriptions
from gateway.coordination.mirror.cursors import Cursors
from gateway.coordination.mirror.mirror import OffsetMirror
from gateway.coordination.mirror.schedule import MirrorKey
from gateway.coordination.partition.clock import WallClock
from gateway.coordination.partition.coordinator_partitions import CoordinatorPartitions, InternalTopicSpec
from gateway.coordination.partition.kind import CoordinatorKind
from gateway.errors import KafkaError
from gateway.fan_out import Slices
from gateway.fleet.view import ClusterFleet
from gateway.log.registry import LogRegistry
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.topics.catalog import TopicCatalog
from gateway.topics.topic import Topic
from gateway.topics.topic_names import CONSUMER_OFFSETS

DELETION_CHECKS, DELETION_CHECK_S = 60, 2.0
MAX_DELETED_TOPICS = 10_000
"""The topics deleted last are kept, for partitions that are loaded later."""


class GroupService:
    def __init__(
        self,
        client: PulsarClient,
        admin: AdminClient,
        topics: TopicCatalog,
        fleet: ClusterFleet,
        config: GroupsSection,
        logs: LogRegistry,
        metrics: Metrics,
    ) -> None:
        self._topics = topics
        self._fleet = fleet
        self._config = _group_config(config)
        self._clock = WallClock()
        self._deleted: deque[DeletedTopic] = deque(maxlen=MAX_DELETED_TOPICS)
        self.subscribed_topics = SubscribedTopics(topics)
        self.configs = GroupConfigs(admin, topics, config)
        spec = InternalTopicSpec(CONSUMER_OFFSETS, config.offsets_topic_partitions, config.offsets_topic_segment_bytes)
        self.coordinators: CoordinatorPartitions[GroupCoordinator] = CoordinatorPartitions(
            spec,
            CoordinatorKind(self._new_coordinator, BARRIER),
            client,
            admin,
            topics,
            fleet,
            metrics,
            self._clock,
            self._loaded,
        )
        self._mirror: OffsetMirror | None = None
        if config.mirror:
            cursors = Cursors(client, admin, replicated=config.mirror_replicated)
            self._mirror = OffsetMirror(cursors, topics, logs, self._committed, metrics, self._clock.now_ms)
        ends = EndOffsets(client, admin, topics, logs)
        self._lag = GroupLag(ends, lambda: self.coordinators.partitions, metrics, config.max_lag_series)
        self._tasks = TaskGroup()
        self._starting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Prepare the topic and load the partitions placed here; return when each was tried once."""
        self._tasks.keep_running("subscribed topics", self._follow_topics)
        self._starting = asyncio.create_task(self._start())
        await asyncio.shield(self._starting)

    async def _follow_topics(self) -> None:
        await self.subscribed_topics.follow(self._subscriptions, self._topics_changed)

    async def _start(self) -> None:
        await self.coordinators.prepare()
        self._tasks.keep_running("group configurations", self.configs.follow)
        await self.coordinators.load()
        self._tasks.keep_running("group lag", self._lag.follow)

    async def stop(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        await self._tasks.close()
        if self._mirror is not None:
            await self._mirror.stop()
        await self.coordinators.stop()

    def _new_coordinator(self, log: Log) -> GroupCoordinator:
        return GroupCoordinator(
            self._config, log, lambda: str(uuid.uuid4()), self.subscribed_topics, self._offsets_changed,
            self.configs.own_times,
        )  # fmt: skip

    def _offsets_changed(self, group_id: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        if self._mirror is not None:
            self._mirror.offsets_changed(group_id, offsets)

    def _loaded(self, partition: GroupPartition, deleted: Set[GroupTopicPartition]) -> None:
        self._inform_of_deletion(partition, tuple(self._deleted))
        if self._mirror is not None:
            self._mirror.partition_loaded(partition, deleted)

    # Committed offsets and Pulsar's subscriptions

    def _committed(self, key: MirrorKey) -> int | None:
        """None if another gateway coordinates the group, or the offset belongs to another topic of the same name.

        Raises KafkaError while the committed offset is not known.
        """
        asked = FetchOffsetsRequest(key.group_id, [key.partition])
        answer = self.coordinators.run(key.group_id, lambda coordinator, now_ms: coordinator.fetch_offsets(asked))
        if not answer.error:
            fetched = answer.offsets[key.partition]
            topic = self._topics.cached(key.partition.topic)
            is_of_another = topic is not None and fetched.topic_id not in (b"", topic.topic_id.bytes)
            return None if is_of_another else fetched.offset
        if self._is_taken(key.group_id):  # the coordinator is loading, or the lease has expired for now
            raise KafkaError(answer.error, "the group's coordinator does not answer")
        return None

    def _is_taken(self, group_id: str) -> bool:
        number = self.coordinators.partition_of(group_id)
        return number is not None and self.coordinators.partitions[number].taken

    async def subscribed_offsets(
        self, group_id: str, committed: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The positions of Pulsar subscriptions of the group's name, in partitions where they take precedence over the
        commit.

        NO_OFFSET means no commit. Raises PulsarError, KafkaError and TimeoutError.
        """
        return {} if self._mirror is None else await self._mirror.offsets(group_id, committed)

    # Topic changes

    async def partitions_added(self, topic: Topic, count: int) -> None:
        """The topic has `count` partitions now. Raises PulsarError."""
        if self._mirror is not None:
            await self._mirror.partitions_added(topic, range(topic.partitions, count))

    async def _subscriptions(self) -> Subscriptions:
        """Many groups may name very many topics: other work can run in between."""
        names: set[str] = set()
        regexes: set[str] = set()
        slices = Slices()
        async for subscription in self._iter_subscriptions():
            regexes |= subscription.regexes
            for some in subscription.names:
                await slices.pause()
                names |= some
        return Subscriptions(names, regexes)

    async def _iter_subscriptions(self) -> AsyncIterator[GroupSubscription]:
        slices = Slices()
        for partition in [*self.coordinators.partitions]:
            for group_id in partition.run(lambda coordinator, now_ms: coordinator.consumer_group_ids()):
                await slices.pause()
                yield partition.run(lambda coordinator, now_ms, group_id=group_id: coordinator.subscription(group_id))  # type: ignore[misc]

    def _topics_changed(self, names: Collection[str]) -> None:
        for partition in self.coordinators.partitions:
            partition.run(lambda coordinator, now_ms: coordinator.topics_changed(names))

    def forget_topics(self, topics: Collection[DeletedTopic]) -> None:
        """The topics were deleted. Partitions that are loaded here later are informed when they are loaded."""
        self._deleted.extend(topics)
        for partition in self.coordinators.partitions:
            self._inform_of_deletion(partition, topics)

    def _inform_of_deletion(self, partition: GroupPartition, topics: Collection[DeletedTopic]) -> None:
        partition.inform(lambda coordinator, now_ms: coordinator.forget_topics(topics, now_ms))

    async def leave_topic(self, name: str) -> None:
        """Return when no subscription of the topic is being moved: it is hidden already, and may be deleted."""
        if self._mirror is not None:
            await self._mirror.leave_topic(name)

    async def leave_topic_everywhere(self, name: str) -> None:
        """The same for all gateways of the fleet, as far as they answer."""
        await asyncio.gather(self.leave_topic(name), self._fleet.ask_to_stop(name))

    def topic_deleted(self, topic: Topic) -> None:
        """Offsets that were committed in the topic are invalid now, on all gateways."""
        deleted = DeletedTopic(topic.name, topic.topic_id.bytes, self._clock.now_ms())
        self.forget_topics([deleted])
        self._fleet.announce_deletion(deleted)

    async def deletion_failed(self, topic: Topic) -> None:
        """Pulsar may delete the topic nevertheless: if it does, its offsets are removed. Returns when that is known."""
        for _ in range(DELETION_CHECKS):
            try:
                found = await self._topics.read(topic.name)
            except PulsarError:
                found = topic
            if found is None or found.topic_id != topic.topic_id:
                self.topic_deleted(topic)
                return
            await asyncio.sleep(DELETION_CHECK_S)


def _group_config(section: GroupsSection) -> GroupConfig:
    return GroupConfig(
        min_session_timeout_ms=section.min_session_timeout_ms,
        max_session_timeout_ms=section.max_session_timeout_ms,
        max_size=section.max_size,
        max_metadata_bytes=section.max_metadata_bytes,
        initial_rebalance_delay_ms=section.initial_rebalance_delay_ms,
        offsets_retention_ms=section.offsets_retention_minutes * 60_000,
        consumer_heartbeat_interval_ms=section.consumer_heartbeat_interval_ms,
        consumer_session_timeout_ms=section.consumer_session_timeout_ms,
        consumer_max_size=section.consumer_max_size,
        online_upgrade=section.consumer_migration_policy in ("upgrade", "bidirectional"),
        online_downgrade=section.consumer_migration_policy in ("downgrade", "bidirectional"),
    )
