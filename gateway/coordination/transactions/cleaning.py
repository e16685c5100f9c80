"""Cleans the compacted topics with transactions that this gateway leads (`log/cleaning`)."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from uuid import UUID

import structlog

from coordinator.fleet.leadership import PartitionRole
from gateway.background import report
from gateway.coordination.transactions.unclean_logs import Key, UncleanLogs
from gateway.errors import KafkaError
from gateway.fan_out import Slices
from gateway.fleet.view import FleetView
from gateway.log.cleaning.cleaner import LogCleaner, Rules
from gateway.log.cleaning.dirtiness import End, PastEnds, is_dirty
from gateway.log.cleaning.garbage import SharedKeysError
from gateway.log.cleaning.past_cleanings import cleaned_to
from gateway.log.partition_log import PartitionLog
from gateway.log.registry import LogRegistry
from gateway.log.transactions.checkpoint import NO_ENTRY
from gateway.observability.metrics import Metrics
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position
from gateway.topics.topic import Topic
from gateway.topics.topic_policies import compaction_threshold

CHECK_S = 15.0
"""Kafka's log.cleaner.backoff.ms."""
AGAIN_S, MAX_AGAIN_S = 60.0, 3_600.0
"""Pauses after failures. Each attempt reads a whole log, so the pause doubles."""

Found = tuple[Key, Topic, PartitionLog]
log = structlog.get_logger()


class _Led:
    """A log that this gateway leads."""

    def __init__(self, topic_id: UUID, cleaner: LogCleaner) -> None:
        self.topic_id = topic_id
        self.cleaner = cleaner
        self.ends = PastEnds()
        self.asked: Position | None = None
        """The end of what could be cleaned when the log's size was last read from Pulsar."""
        self.cleaned: Position | None = None
        """Up to there it is clean, as far as it could be; None if that was not read yet."""
        self.failures = 0
        self.again_at = 0.0

    def due(self, rules: Rules) -> End | None:
        """The end of what can be cleaned, unless that is clean, or its size is known. After a failure, the pause has to
        be over."""
        opened, now_s = self.cleaner.partition_log, time.monotonic()
        self.ends.add(End(now_s, opened.source.last_position, opened.end_offset))
        if self.failures and now_s < self.again_at:
            return None
        transactions = opened.transactions
        stable_offset = transactions.last_stable_offset if transactions.loaded else opened.end_offset
        end = self.ends.newest(now_s - rules.lag_ms / 1000, stable_offset)
        if end is None or end.position == self.asked or (self.cleaned is not None and end.position <= self.cleaned):
            return None
        return end

    @property
    def is_clean(self) -> bool:
        """As far as it could be, to its end. Or too little is left to clean it."""
        last = self.cleaner.partition_log.source.last_position
        return not self.failures and last <= max(self.asked or NO_ENTRY, self.cleaned or NO_ENTRY)

    def failed(self) -> None:
        self.asked = None
        self.again_at = time.monotonic() + min(MAX_AGAIN_S, AGAIN_S * 2.0 ** min(self.failures, 16))
        self.failures += 1


class Cleaning:
    """Cleans one log after the other, so that only one needs memory."""

    def __init__(
        self, fleet: FleetView, logs: LogRegistry, cached: Callable[[str], Topic | None],
        begin_transactions: Callable[[str], Awaitable[None]], metrics: Metrics,
    ) -> None:  # fmt: skip
        """``cached``: the topic as it is known now. ``begin_transactions`` notes that a topic has transactions."""
        self._fleet = fleet
        self._logs = logs
        self._cached = cached
        self._begin_transactions = begin_transactions
        self._begin_again_at: dict[str, float] = {}
        """The topics for which that failed."""
        self._led: dict[Key, _Led] = {}
        self._unclean = UncleanLogs()
        metrics.uncleanable_partitions.set_function(lambda: sum(each.failures > 0 for each in self._led.values()))

    async def follow(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            await self.check()

    async def check(self) -> None:
        all_led = await self._all_led()
        await self._begin_copied(all_led)
        now_led = [each for each in all_led if each[1].has_compaction_keys]
        before = self._led
        self._led = {key: self._known(key, topic.topic_id, opened) for key, topic, opened in now_led}
        for key, topic, _ in now_led:
            led = self._led[key]
            end = led.due(_rules(topic))
            if end is not None:
                await self._clean_if_dirty(key, topic, led, end)
            elif led.is_clean:
                self._unclean.forget(key)
        await self._open_unclean({key: led for key, led in before.items() if key not in self._led})

    async def _open_unclean(self, closed: Mapping[Key, _Led]) -> None:
        """Logs that were closed as idle, when there may be something to clean."""
        for key, led in closed.items():
            topic = self._cleaned_topic(key)
            if topic is not None and topic.topic_id == led.topic_id and not led.is_clean:
                self._unclean.closed(key, _rules(topic).lag_ms / 1000)
            else:
                self._unclean.forget(key)
        for key in self._unclean.due(self._led.keys()):
            topic = self._cleaned_topic(key)
            if topic is None:
                self._unclean.forget(key)
                continue
            try:
                await self._logs.open(topic, key[1])
            except (KafkaError, PulsarError, TimeoutError) as error:
                log.info("a log to be cleaned was not opened", topic=key[0], partition=key[1], error=repr(error))
                self._unclean.closed(key, 0)

    def _cleaned_topic(self, key: Key) -> Topic | None:
        """The topic, if this gateway has to clean the partition."""
        topic = self._cached(key[0])
        if topic is None or not (topic.compacts and topic.has_compaction_keys):
            return None
        return topic if self._fleet.role(*key) is PartitionRole.LEADING else None

    async def _begin_copied(self, all_led: Sequence[Found]) -> None:
        """Transactions that only replication brings have begun here without a client. Pulsar's own compaction removes
        nothing of them."""
        now_s = time.monotonic()
        copied = {topic.name for _, topic, _ in all_led if topic.messages_only and not topic.has_transactions}
        self._begin_again_at = {name: at_s for name, at_s in self._begin_again_at.items() if name in copied}
        for name in copied:
            if now_s < self._begin_again_at.get(name, now_s):
                continue
            try:
                await self._begin_transactions(name)
            except (KafkaError, PulsarError, TimeoutError) as error:
                log.warning("cannot note that a topic has transactions", topic=name, error=repr(error))
                self._begin_again_at[name] = time.monotonic() + AGAIN_S

    async def _all_led(self) -> list[Found]:
        """The compacted logs with transactions that this gateway leads."""
        found, slices = [], Slices()
        for key, opened in self._logs.all_open():
            await slices.pause()
            topic = self._cached(key[0])
            if topic is None or not (topic.compacts and opened.transactions.flagged):
                continue
            if self._fleet.role(*key) is PartitionRole.LEADING:
                found.append((key, topic, opened))
        return found

    def _known(self, key: Key, topic_id: UUID, opened: PartitionLog) -> _Led:
        known = self._led.get(key)
        if known is None or known.topic_id != topic_id:  # or the topic was made anew
            return _Led(topic_id, LogCleaner(opened))
        known.cleaner.partition_log = opened  # the log may have been opened again
        return known

    async def _clean_if_dirty(self, key: Key, topic: Topic, led: _Led, end: End) -> None:
        opened = led.cleaner.partition_log
        source, resources = opened.source, self._logs.shared.resources
        before, end_offset, led.asked = source.last_position, opened.end_offset, end.position
        try:
            stats = await resources.admin.topics.internal_stats(source.pulsar_topic)
            if led.cleaned is None:
                led.cleaned = await cleaned_to(resources, source.pulsar_topic, stats)
            threshold = compaction_threshold(topic.configs, topic.defaults)
            ratio = float(topic.config("min.cleanable.dirty.ratio"))
            if is_dirty(stats, led.cleaned, end.position, threshold, ratio):
                began_s, old = time.monotonic(), NO_ENTRY if end.at_s == -math.inf else end.position
                removed, limited_at = await led.cleaner.clean(_rules(topic)._replace(old=old))
                log.info("cleaned", topic=key[0], partition=key[1], removed=removed)
                if limited_at is None:
                    has_news = opened.end_offset - end_offset > removed
                    led.cleaned = before if has_news else source.last_position
                else:  # the rest counts again when it is old enough, and decided
                    led.cleaned, led.asked = limited_at, None
                    led.ends.learned(began_s)
            led.failures = 0
        except (KafkaError, PulsarError, SharedKeysError, TimeoutError) as error:
            log.warning("not cleaned", topic=key[0], partition=key[1], error=repr(error))
            led.failed()
        except Exception as defect:  # a bug of ours: the other logs are cleaned
            report("cleaning of a compacted topic", defect)
            led.failed()


def _rules(topic: Topic) -> Rules:
    return Rules(int(topic.config("delete.retention.ms")), int(topic.config("min.compaction.lag.ms")))
