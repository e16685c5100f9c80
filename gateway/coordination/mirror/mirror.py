"""Mirrors committed offsets to Pulsar subscriptions, after the commits and without delaying them.

A commit only marks its keys. A bounded number of updates run at the same time. An update reads the committed offset
when its turn comes, and is retried after a pause if it fails. In the other direction, a group without a committed
offset in a partition starts at the position of a subscription of its name: geo-replication or Pulsar's own tools
have created it.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any, NamedTuple

import structlog

from coordinator.group.messages import NO_OFFSET
from coordinator.group.ports import GroupTopicPartition
from coordinator.topics import TopicPartition
from gateway.background import TaskGroup, report
from gateway.coordination.group_partition import GroupPartition, iter_committed
from gateway.coordination.mirror.cursors import Cursor, Cursors, TopicCursors
from gateway.coordination.mirror.names import subscription_name
from gateway.coordination.mirror.reads import MirroredTopic, SharedReads, Unanswered
from gateway.coordination.mirror.schedule import COALESCE_MS, MirrorKey, MirrorSchedule
from gateway.errors import KafkaError
from gateway.fan_out import Slices
from gateway.log.registry import LogRegistry
from gateway.observability.metrics import Metrics
from gateway.pulsar.errors import PulsarError
from gateway.topics.catalog import TopicCatalog
from gateway.topics.topic import Topic
from gateway.topics.topic_names import INTERNAL_TOPICS, to_pulsar

UPDATE_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 15.0
"""Enough for about ten thousand partitions without a committed offset; clients wait 30 s."""
READ_SLICE = 200
"""The number of partitions of one request that are read at the same time."""
LOG_EVERY_S = 10.0
CARRY_OVER_S = 2.5
"""Brokers create a snapshot about once a second, if something was written since the last one."""
CARRY_OVER_ATTEMPTS = 3
FAILURES = (PulsarError, KafkaError, TimeoutError)

Committed = Callable[[MirrorKey], int | None]
"""The offset that is committed now, NO_OFFSET if there is none; None if another gateway coordinates the group.

Raises KafkaError while the offset is not known."""

log = structlog.get_logger()


class _ReadOffset(NamedTuple):
    """The offset of a subscription's position, in the topic of this id."""

    topic_id: uuid.UUID
    offset: int


class OffsetMirror:
    def __init__(
        self,
        cursors: Cursors,
        topics: TopicCatalog,
        logs: LogRegistry,
        committed: Committed,
        metrics: Metrics,
        now_ms: Callable[[], int],
    ) -> None:
        self._cursors = cursors
        self._topics = topics
        self._logs = logs
        self._committed = committed
        self._metrics = metrics
        self._now_ms = now_ms
        self._schedule = MirrorSchedule()
        self._timer: asyncio.Handle | None = None
        self._timer_due_ms = 0
        self._tasks = TaskGroup()
        self._deleted: set[MirrorKey] = set()
        """Deleted offsets whose subscriptions may be left by a gateway that died; they are not checked yet."""
        self._reads = SharedReads(cursors.read, lambda found: len(found.by_name))
        self._names = SharedReads(cursors.names, len)
        self._unanswered = Unanswered()
        self._logged_at = float("-inf")
        self._stopped = False
        self._updating: dict[str, set[asyncio.Task[Any]]] = {}
        """The updates that run, by topic."""
        self._compared: set[MirrorKey] = set()
        """Offsets of replicated groups that wait without a new commit: a subscription that another cluster has moved on
        is not moved back to them."""
        self._carried: dict[MirrorKey, int] = {}
        """By key: how often a position at the end of a log was written again, until other clusters get it."""
        metrics.mirror_pending.set_function(lambda: len(self._schedule))
        metrics.mirror_lag_seconds.set_function(self._lag_s)

    def _lag_s(self) -> float:
        oldest_ms = self._schedule.oldest_ms()
        return 0.0 if oldest_ms is None else max(0, self._now_ms() - oldest_ms) / 1000

    async def stop(self) -> None:
        """Changes that are not mirrored yet are mirrored after a coordinator has loaded its groups again."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(self._tasks.close(), self._reads.close(), self._names.close(), return_exceptions=True)

    # To Pulsar

    def offsets_changed(self, group_id: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        """None: the offset was removed."""
        now_ms = self._now_ms()
        for partition, offset in offsets.items():
            key = MirrorKey(group_id, partition)
            self._carried.pop(key, None)
            self._compared.discard(key)
            if not self._schedule.changed(key, now_ms, removed=offset is None):
                self._metrics.mirror_dropped.inc()
        if self._timer is None or self._timer_due_ms > now_ms + COALESCE_MS:  # no change is due before that
            self._arm()

    def partition_loaded(self, loaded: GroupPartition, deleted: Iterable[GroupTopicPartition]) -> None:
        """A coordinator has taken over groups: mirror, in the background, what is not mirrored yet."""
        self._cursors.forget()
        self._reads.forget_all()
        self._names.forget_all()
        keys = {MirrorKey(*key) for key in deleted}
        self._deleted |= keys
        self._spawn(self._compare(loaded, keys))

    async def _compare(self, loaded: GroupPartition, deleted: Set[MirrorKey]) -> None:
        by_partition: dict[TopicPartition, list[tuple[str, int]]] = {}
        for group_id, partition in deleted:
            by_partition.setdefault(partition, []).append((group_id, NO_OFFSET))
        try:
            async for group_id, offsets in iter_committed(loaded):
                for partition, offset in offsets.items():
                    by_partition.setdefault(partition, []).append((group_id, offset))
            for partition, expected in by_partition.items():
                await self._compare_partition(partition, expected)
        finally:
            self._deleted -= deleted

    async def _compare_partition(self, partition: TopicPartition, expected: Iterable[tuple[str, int]]) -> None:
        expected = list(expected)
        wrong = expected
        try:
            if (topic := await self._topic(partition)) is not None:
                wrong = await self._not_mirrored(topic.name, expected)
        except FAILURES as error:
            log.info("cannot compare subscriptions: updating all", topic=partition.topic, error=str(error))
        slices = Slices()
        for group_id, offset in wrong:
            await slices.pause()
            self._mirror_again(MirrorKey(group_id, partition), offset)

    def _mirror_again(self, key: MirrorKey, offset: int) -> None:
        is_committed_since = key in self._schedule and key not in self._compared
        self.offsets_changed(key.group_id, {key.partition: None if offset == NO_OFFSET else offset})
        if self._cursors.replicated and offset != NO_OFFSET and key in self._schedule and not is_committed_since:
            self._compared.add(key)

    async def _not_mirrored(self, topic: str, expected: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        cursors = await self._cursors.read(topic)
        wrong, slices = [], Slices()
        for group_id, offset in expected:
            await slices.pause()
            cursor = cursors.by_name.get(subscription_name(group_id))
            # A cursor without an offset was not written by a gateway: it was created after the group was deleted, or
            # it was moved forward because the group has read in another cluster.
            found = NO_OFFSET if cursor is None or cursor.offset is None else cursor.offset
            if found != offset and not await self._was_moved_on(topic, cursors, cursor, offset):
                wrong.append((group_id, offset))
        return wrong

    async def _was_moved_on(self, topic: str, cursors: TopicCursors, cursor: Cursor | None, committed: int) -> bool:
        if cursor is None or cursor.offset is not None or not self._cursors.replicated:
            return False
        return await self._cursors.offset_at(topic, cursors, cursor) >= committed

    async def _was_moved_since(self, topic: str, name: str, committed: int) -> bool:
        """Another cluster has moved the subscription, perhaps after it was compared: it is not moved back."""
        cursors = await self._cursors.read(topic)
        return await self._was_moved_on(topic, cursors, cursors.by_name.get(name), committed)

    def _take_turns(self) -> None:
        self._timer = None
        while not self._stopped and (key := self._schedule.take(self._now_ms())) is not None:
            self._spawn(self._mirror(key))
        self._arm()

    def _arm(self) -> None:
        """Set the timer for the next turn, unless it is set for an earlier time."""
        due_ms = self._schedule.next_ms(self._now_ms())
        if due_ms is None or self._stopped:
            return
        if self._timer is not None:
            if self._timer_due_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_due_ms = due_ms  # not read from the timer: uvloop's timers that are due now have no `when`
        delay_s = max(0, due_ms - self._now_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._take_turns)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.run_once("offset mirror", work)

    async def leave_topic(self, topic: str) -> None:
        """Wait for the updates of a topic that is not found any more, because it will be deleted. Each has a timeout.

        A cursor that Pulsar writes after it has deleted the partition stays for ever, and with it the topic cannot be
        created again.
        """
        updating = self._updating.get(topic)
        if updating:
            await asyncio.wait(tuple(updating))
        self._cursors.forget_topic(to_pulsar(topic))

    @contextmanager
    def _counted(self, topic: str) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        updating = self._updating.setdefault(topic, set())
        updating.add(task)
        try:
            yield
        finally:
            updating.discard(task)
            if not updating and self._updating.get(topic) is updating:
                del self._updating[topic]

    async def _mirror(self, key: MirrorKey) -> None:
        try:
            with self._counted(key.partition.topic):
                async with asyncio.timeout(UPDATE_TIMEOUT_S):
                    await self._update(key)
        except FAILURES as error:
            self._failed(key, error)
        except Exception as error:  # a defect of the gateway in one update must not end the others
            report("offset mirror", error)
            self._failed(key, error)
        else:
            self._schedule.succeeded(key, self._now_ms())
            if key not in self._schedule:
                self._compared.discard(key)
            self._metrics.mirror_updates.inc()
        self._arm()

    async def _update(self, key: MirrorKey) -> None:
        topic = await self._topic(key.partition)
        offset = self._committed(key)
        if offset is None or topic is None:
            self._carried.pop(key, None)
            return
        name = subscription_name(key.group_id)
        try:
            if offset == NO_OFFSET:
                self._carried.pop(key, None)
                await self._cursors.delete(topic.name, name)
            elif key not in self._compared or not await self._was_moved_since(topic.name, name, offset):
                found = None
                if not self._cursors.knows(topic.name, name):
                    found = (await self._reads.find(topic, name)).by_name.get(name)
                log_ = self._logs.find(*key.partition)
                if await self._cursors.move(topic.name, name, offset, log_, found):
                    self._carried.pop(key, None)
                else:
                    self._carry_over_later(key)
        finally:
            self._moved(topic, name)

    def _moved(self, topic: MirroredTopic, name: str) -> None:
        self._reads.forget(topic, name)
        self._names.forget(topic, name)

    def _carry_over_later(self, key: MirrorKey) -> None:
        attempts = self._carried.pop(key, 0) + 1
        if attempts <= CARRY_OVER_ATTEMPTS and not self._stopped:
            self._carried[key] = attempts
            asyncio.get_running_loop().call_later(CARRY_OVER_S, self._carry_over, key, attempts)

    def _carry_over(self, key: MirrorKey, attempt: int) -> None:
        if self._carried.get(key) == attempt and not self._stopped:  # otherwise an offset was committed in the meantime
            if key not in self._schedule:
                self._compared.add(key)
            self._schedule.changed(key, self._now_ms())
            self._arm()

    def _failed(self, key: MirrorKey, error: Exception) -> None:
        self._schedule.failed(key, self._now_ms(), timed_out=isinstance(error, TimeoutError))
        self._metrics.mirror_failures.labels(type(error).__name__).inc()
        if time.monotonic() - self._logged_at >= LOG_EVERY_S:
            self._logged_at = time.monotonic()
            log.warning(
                "subscription was not updated; will retry", group=key.group_id,
                topic=key.partition.topic, partition=key.partition.partition,
                subscription=subscription_name(key.group_id), error=str(error) or type(error).__name__,
            )  # fmt: skip

    async def partitions_added(self, topic: Topic, numbers: Iterable[int]) -> None:
        """Delete groups' subscriptions from new partitions: Pulsar copies the first partition's, to the end.

        A group has no position there yet: it would start after records that are written before its first read.
        Raises PulsarError.
        """
        first = (await self._cursors.read(topic.pulsar_topic(0))).by_name
        groups = {name for name, cursor in first.items() if cursor.offset is not None}
        for number in numbers:
            partition = topic.pulsar_topic(number)
            made = (await self._cursors.read(partition)).by_name
            for name in groups & {name for name, cursor in made.items() if cursor.offset is None}:
                await self._cursors.delete(partition, name)
                self._moved(MirroredTopic(partition, topic.topic_id), name)

    # From Pulsar

    async def offsets(self, group_id: str, committed: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The positions of the group's subscriptions, in partitions where they take precedence over committed offsets.

        These are partitions without a committed offset (NO_OFFSET), and those where a replicated subscription was
        moved forward: the group has read in another cluster. Raises PulsarError, KafkaError and TimeoutError.
        """
        name = subscription_name(group_id)
        wanted = [each for each, offset in committed.items() if offset == NO_OFFSET or self._cursors.replicated]
        asked = [partition for partition in wanted if not self._is_pending(MirrorKey(group_id, partition))]
        if not asked:
            return {}
        found: dict[TopicPartition, int] = {}
        with self._unanswered.since(name) as since:
            async with asyncio.timeout(READ_TIMEOUT_S):
                for start in range(0, len(asked), READ_SLICE):
                    some = asked[start : start + READ_SLICE]
                    offsets = await asyncio.gather(*(self._offset(name, each, committed[each], since) for each in some))
                    read = {each: offset for each, offset in zip(some, offsets, strict=True) if offset is not None}
                    found |= await self._of_the_same_topics(read)
        return found

    async def _of_the_same_topics(self, read: Mapping[TopicPartition, _ReadOffset]) -> dict[TopicPartition, int]:
        """Without positions in topics that have been deleted since, perhaps by another gateway, or by Pulsar's tools.

        In a new topic of the same name the group would skip what is written before its first read.
        """
        names = [*{partition.topic for partition in read}]
        topics = await asyncio.gather(*(self._topics.get(name, fresh=True) for name in names))
        ids = {name: topic.topic_id for name, topic in zip(names, topics, strict=True) if topic is not None}
        return {each: at.offset for each, at in read.items() if ids.get(each.topic) == at.topic_id}

    def _is_pending(self, key: MirrorKey) -> bool:
        """The subscription is about to be moved or deleted."""
        return key in self._schedule or key in self._deleted

    async def _offset(self, name: str, partition: TopicPartition, committed: int, since: float) -> _ReadOffset | None:
        topic = await self._topic(partition)
        if topic is None or name not in await self._names.find(topic, name, since):
            return None
        cursors = await self._reads.find(topic, name, since)
        cursor = cursors.by_name.get(name)
        if cursor is None or (committed != NO_OFFSET and cursor.offset is not None):  # moved for what is committed
            return None
        offset = await self._cursors.offset_at(topic.name, cursors, cursor)
        return _ReadOffset(topic.topic_id, offset) if offset > committed else None

    async def _topic(self, partition: TopicPartition) -> MirroredTopic | None:
        """None if there is no such partition, or if it is internal: subscriptions would keep what is trimmed."""
        if partition.topic in INTERNAL_TOPICS:
            return None
        topic = await self._topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < topic.partitions:
            return None
        return MirroredTopic(topic.pulsar_topic(partition.partition), topic.topic_id)
