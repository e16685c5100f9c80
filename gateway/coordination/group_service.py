"""Consumer groups of this gateway: which partition of `__consumer_offsets` a group belongs to, and its coordinator.

Of the partitions, this gateway takes those that are placed here, once the gateway before it has released them.

A group belongs to partition abs(hash) % count, where hash is Java's String.hashCode, as in Kafka.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping, Set
from copy import copy
from functools import partial
from typing import TypeVar

import structlog

from coordinator.fleet.leadership import PartitionRole
from coordinator.group.config import GroupConfig
from coordinator.group.coordinator import GroupCoordinator
from coordinator.group.messages import FetchOffsetsRequest, ListedGroup
from coordinator.group.ports import DeletedTopic, GroupTopicPartition, TopicPartition
from coordinator.group.slices import SLICE_UNITS
from gateway.background import TaskGroup
from gateway.backoff import Backoff, retried
from gateway.config import GroupsSection
from gateway.coordination.group_configs import GroupConfigs
from gateway.coordination.group_lag import EndOffsets, GroupLag
from gateway.coordination.group_partition import BARRIER, GroupPartition, WallClock
from gateway.coordination.internal_topic import prepare_internal_topic
from gateway.coordination.log_trimming import LogTrimming
from gateway.coordination.mirror.cursors import Cursors
from gateway.coordination.mirror.mirror import OffsetMirror
from gateway.coordination.mirror.schedule import MirrorKey
from gateway.coordination.subscribed_topics import SubscribedTopics, Subscriptions
from gateway.coordination.trimming_cursor import TrimmingCursor
from gateway.errors import KafkaError
from gateway.fleet.fleet import Fleet
from gateway.log.registry import LogRegistry
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.topics.catalog import TopicCatalog
from gateway.topics.topic import Topic
from gateway.topics.topic_names import CONSUMER_OFFSETS
from protocol.kafka.errors import ErrorCode

PREPARE_PAUSE_S = 1.0
DELETION_CHECKS, DELETION_CHECK_S = 60, 2.0
MAX_DELETED_TOPICS = 10_000
"""Those last deleted, for partitions that are loaded later."""
TRIED_CHECK_S = 0.01

T = TypeVar("T")
R = TypeVar("R")
log = structlog.get_logger()


class GroupService:
    """Until the topic is there, `ready` is false and every group's coordinator is loading."""

    def __init__(
        self,
        client: PulsarClient,
        admin: AdminClient,
        topics: TopicCatalog,
        fleet: Fleet,
        config: GroupsSection,
        logs: LogRegistry,
        metrics: Metrics,
    ) -> None:
        self._client = client
        self._admin = admin
        self._topics = topics
        self._fleet = fleet
        self._config = config
        self._metrics = metrics
        self._clock = WallClock()
        self._snapshot_turn = asyncio.Lock()
        self._mirror: OffsetMirror | None = None
        if config.mirror:
            cursors = Cursors(client, admin, replicated=config.mirror_replicated)
            self._mirror = OffsetMirror(cursors, topics, logs, self._committed, metrics, self._clock.now_ms)
        ends = EndOffsets(client, admin, topics, logs)
        self._lag = GroupLag(ends, lambda: self._partitions, metrics, config.max_lag_series)
        self.subscribed_topics = SubscribedTopics(topics)
        self.configs = GroupConfigs(admin, topics, config)
        self._deleted: deque[DeletedTopic] = deque(maxlen=MAX_DELETED_TOPICS)
        self._tasks = TaskGroup()
        self._partitions: list[GroupPartition] = []
        self._unprepared = self._new_partition("", lambda: PartitionRole.TAKING_OVER)
        """Answers for all while the topic is not known: it is loading, for ever."""
        self._starting: asyncio.Task[None] | None = None

    def elsewhere(self) -> GroupService:
        """A view of the service that answers as for groups which other gateways coordinate."""
        view = copy(self)
        view._partitions = []
        view._unprepared = self._new_partition("", lambda: PartitionRole.ELSEWHERE)
        return view

    async def start(self) -> None:
        """Prepare the topic and load the partitions placed here; return when each was tried once."""
        self._tasks.keep_running("subscribed topics", self._follow_topics)
        self._starting = asyncio.create_task(self._start())
        await asyncio.shield(self._starting)

    async def _follow_topics(self) -> None:
        await self.subscribed_topics.follow(self._subscriptions, self._tell_topics_changed)

    async def stop(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        await self._tasks.close()
        if self._mirror is not None:
            await self._mirror.stop()
        await asyncio.gather(*(partition.resign() for partition in self._partitions))

    async def _start(self) -> None:
        topic = await self._prepare_topic()
        self._tasks.keep_running("group configurations", self.configs.follow)
        self._partitions = [
            self._new_partition(topic.pulsar_topic(number), partial(self._fleet.role, CONSUMER_OFFSETS, number))
            for number in range(topic.partitions)
        ]
        self.take_placed()
        for number, partition in enumerate(self._partitions):
            while self._fleet.leads(CONSUMER_OFFSETS, number) and not partition.tried.is_set():
                await asyncio.sleep(TRIED_CHECK_S)
        self._tasks.keep_running("group lag", self._lag.follow)

    def _new_partition(self, pulsar_topic: str, role: Callable[[], PartitionRole]) -> GroupPartition:
        return GroupPartition(
            self._client,
            pulsar_topic,
            _group_config(self._config),
            self.subscribed_topics,
            self._clock,
            role,
            self._new_trimming(pulsar_topic),
            self._offsets_changed,
            self._loaded,
            self.configs.own_times,
        )

    def _new_trimming(self, pulsar_topic: str) -> LogTrimming:
        return LogTrimming(
            self._client,
            TrimmingCursor(self._client, self._admin, pulsar_topic),
            pulsar_topic,
            BARRIER,
            self._clock.now_ms,
            self._config.offsets_topic_segment_bytes,
            self._snapshot_turn,
            self._metrics,
        )

    def _offsets_changed(self, group_id: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        if self._mirror is not None:
            self._mirror.offsets_changed(group_id, offsets)

    def _loaded(self, partition: GroupPartition, deleted: Set[GroupTopicPartition]) -> None:
        partition.forget_topics(tuple(self._deleted))
        if self._mirror is not None:
            self._mirror.partition_loaded(partition, deleted)

    # Leadership

    def take_placed(self) -> None:
        """Take what is placed here; each partition waits for its leader before to release it, and for the lease."""
        for number, partition in enumerate(self._partitions):
            if self._fleet.leads(CONSUMER_OFFSETS, number):
                partition.take()

    def check_lease(self) -> None:
        """To be called when the lease may have run out."""
        for partition in self._partitions:
            partition.check_lease()

    async def release_partitions(self) -> None:
        """Resign what is placed elsewhere. A partition that comes back meanwhile is taken again."""
        lost = [
            partition
            for number, partition in enumerate(self._partitions)
            if not self._fleet.leads(CONSUMER_OFFSETS, number)
        ]
        await asyncio.gather(*(partition.resign() for partition in lost))

    async def _prepare_topic(self) -> Topic:
        def try_again(error: Exception) -> bool:
            log.warning("topic of the groups is not ready", topic=CONSUMER_OFFSETS, error=str(error))
            return isinstance(error, KafkaError | PulsarError)

        partitions, segment_bytes = self._config.offsets_topic_partitions, self._config.offsets_topic_segment_bytes
        return await retried(
            lambda: prepare_internal_topic(self._topics, self._admin, CONSUMER_OFFSETS, partitions, segment_bytes),
            try_again,
            Backoff(PREPARE_PAUSE_S),
        )

    @property
    def load_failure(self) -> str | None:
        """Why groups that are placed here are not served, if the last attempt to load them failed."""
        for number, partition in enumerate(self._partitions):
            if partition.load_failure is not None:
                return f"partition {number} of {CONSUMER_OFFSETS} fails to load: {partition.load_failure}"
        return None

    # Asking coordinators

    def run(self, group_id: str, call: Callable[[GroupCoordinator, int], T]) -> T:
        """Call the group's coordinator with the time of day."""
        return self._partition(group_id).run(call)

    def ask(
        self,
        group_id: str,
        call: Callable[[GroupCoordinator, int, Callable[[T], None]], None],
        to_response: Callable[[T], R],
    ) -> asyncio.Future[R]:
        """As `run`, for what is answered later: the response made of what the coordinator replies."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        def reply(answer: T) -> None:
            if not future.done():  # else the client has gone
                future.set_result(to_response(answer))

        self.run(group_id, lambda coordinator, now_ms: call(coordinator, now_ms, reply))
        return future

    def _partition(self, group_id: str) -> GroupPartition:
        if not self._partitions:
            return self._unprepared
        return self._partitions[partition_of(group_id, len(self._partitions))]

    def partition_of(self, group_id: str) -> int | None:
        """The group's partition of the topic; None while the topic is not known."""
        return partition_of(group_id, len(self._partitions)) if self._partitions else None

    async def list_groups(
        self, states: Collection[str], types: Collection[str]
    ) -> tuple[ErrorCode, list[ListedGroup]]:
        """Those that are coordinated here, as far as known; an error that passes if that is not all."""
        error = ErrorCode.NONE if self._partitions else ErrorCode.COORDINATOR_NOT_AVAILABLE
        groups: list[ListedGroup] = []
        for number, partition in enumerate(self._partitions):
            ids = partition.run(lambda coordinator, now_ms: coordinator.group_ids())
            for start in range(0, len(ids) or 1, SLICE_UNITS):
                some = ids[start : start + SLICE_UNITS]
                listed = partition.run(
                    lambda coordinator, now_ms, some=some: coordinator.list_groups(states, types, some)  # type: ignore[misc]
                )
                groups.extend(listed.groups)
                if some:
                    await asyncio.sleep(0)
                if listed.error and self._fleet.leads(CONSUMER_OFFSETS, number):
                    # It is loading, or the lease has run out for now: else it would be another gateway's.
                    not_loading = listed.error is ErrorCode.NOT_COORDINATOR
                    error = ErrorCode.COORDINATOR_NOT_AVAILABLE if not_loading else listed.error
                    break
        return error, groups

    # Committed offsets and Pulsar's subscriptions

    def _committed(self, key: MirrorKey) -> int | None:
        """None if another gateway coordinates the group, or the offset is that of another topic of the name.

        Raises KafkaError while it is not known what is committed.
        """
        asked = FetchOffsetsRequest(key.group_id, [key.partition])
        partition = self._partition(key.group_id)
        answer = partition.run(lambda coordinator, now_ms: coordinator.fetch_offsets(asked))
        if not answer.error:
            fetched = answer.offsets[key.partition]
            topic = self._topics.cached(key.partition.topic)
            is_of_another = topic is not None and fetched.topic_id not in (b"", topic.topic_id.bytes)
            return None if is_of_another else fetched.offset
        if partition.taken:  # it is loading, or the lease has run out for now
            raise KafkaError(answer.error, "the group's coordinator does not answer")
        return None

    async def subscribed_offsets(
        self, group_id: str, committed: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Where Pulsar subscriptions of the group's name stand, in partitions where that counts more than the commit.

        NO_OFFSET stands for no commit. Raises PulsarError, KafkaError and TimeoutError.
        """
        return {} if self._mirror is None else await self._mirror.offsets(group_id, committed)

    # What happened to topics

    async def partitions_added(self, topic: Topic, count: int) -> None:
        """The topic has so many partitions now. Raises PulsarError."""
        if self._mirror is not None:
            await self._mirror.partitions_added(topic, range(topic.partitions, count))

    def _subscriptions(self) -> Subscriptions:
        names: set[str] = set()
        regexes: set[str] = set()
        for partition in self._partitions:
            names |= partition.run(lambda coordinator, now_ms: coordinator.subscribed_names())
            regexes |= partition.run(lambda coordinator, now_ms: coordinator.subscribed_regexes())
        return Subscriptions(names, regexes)

    def _tell_topics_changed(self, names: Collection[str]) -> None:
        for partition in self._partitions:
            partition.run(lambda coordinator, now_ms: coordinator.topics_changed(names))

    def forget_topics(self, topics: Collection[DeletedTopic]) -> None:
        """The topics were deleted. Partitions that are not loaded here yet hear of it when they are."""
        self._deleted.extend(topics)
        for partition in self._partitions:
            partition.forget_topics(topics)

    def topic_deleted(self, topic: Topic) -> None:
        """Nobody's offsets in it mean anything any more, on any gateway."""
        deleted = DeletedTopic(topic.name, topic.topic_id.bytes, self._clock.now_ms())
        self.forget_topics([deleted])
        self._fleet.announce_deletion(deleted)

    async def deletion_failed(self, topic: Topic) -> None:
        """Pulsar may delete it all the same: its offsets go when it has gone. Returns when that is known."""
        for _ in range(DELETION_CHECKS):
            try:
                found = await self._topics.get(topic.name, fresh=True)
            except PulsarError:
                found = topic
            if found is None or found.topic_id != topic.topic_id:
                self.topic_deleted(topic)
                return
            await asyncio.sleep(DELETION_CHECK_S)


def partition_of(group_id: str, count: int) -> int:
    """Java's abs(String.hashCode) % count, over UTF-16 code units."""
    units = group_id.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8) + units[index + 1]) & 0xFFFFFFFF
    magnitude = value if value < 1 << 31 else (1 << 32) - value
    return 0 if magnitude == 1 << 31 else magnitude % count


def _group_config(section: GroupsSection) -> GroupConfig:
    return GroupConfig(
        min_session_timeout_ms=section.min_session_timeout_ms,
        max_session_timeout_ms=section.max_session_timeout_ms,
        max_size=section.max_size,
        initial_rebalance_delay_ms=section.initial_rebalance_delay_ms,
        offsets_retention_ms=section.offsets_retention_minutes * 60_000,
        consumer_heartbeat_interval_ms=section.consumer_heartbeat_interval_ms,
        consumer_session_timeout_ms=section.consumer_session_timeout_ms,
        consumer_max_size=section.consumer_max_size,
        online_upgrade=section.consumer_migration_policy in ("upgrade", "bidirectional"),
        online_downgrade=section.consumer_migration_policy in ("downgrade", "bidirectional"),
    )
