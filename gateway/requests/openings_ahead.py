"""Logs that idempotent producers will probably write to next: they are prepared before a batch waits for them.

After the fleet has changed, a log can check its first idempotent batch only when no late entry of an evicted gateway
can arrive any more, and when its tail is read. A client has at most five requests in flight, and librdkafka writes to
each partition with a request of its own: with many partitions it would wait for five logs at a time. So each log that
a batch needs lets the gateway prepare two more of the topic. If these are needed too, the number doubles; if not, at
most two thirds of the preparations were for nothing.
"""

from __future__ import annotations

import asyncio
import time
from itertools import chain

from coordinator.fleet.leadership import PartitionRole
from gateway.background import run_once
from gateway.errors import KafkaError
from gateway.fleet.view import FleetView
from gateway.log.registry import LogRegistry
from gateway.pulsar.errors import PulsarError
from gateway.topics.topic import Topic

AHEAD = 2
"""The number of logs that are prepared ahead for each one that a batch needs."""
MAX_AT_ONCE = 64
WINDOW_S = 60.0
"""Logs are prepared ahead for this time after the first batch that follows a change of the fleet."""
TIMEOUT_S = 30.0


class _Walk:
    """Visits each partition of a topic once, beginning after the first one that was needed."""

    def __init__(self, topic: Topic, first: int) -> None:
        self.left = chain(range(first + 1, topic.partitions), range(first))
        self.needed: set[int] = set()
        self.ahead: set[int] = set()
        """The partitions that were prepared ahead."""


class OpeningsAhead:
    """For one cluster."""

    def __init__(self) -> None:
        self._epoch: int | None = None
        self._window_ends_s = 0.0
        self._walks: dict[str, _Walk] = {}
        self._at_once = 0

    def needed(self, topic: Topic, partition: int, fleet: FleetView, logs: LogRegistry) -> None:
        """An idempotent batch needs this log, which is not ready for it."""
        now_s = time.monotonic()
        if fleet.epoch != self._epoch:
            self._epoch, self._window_ends_s = fleet.epoch, now_s + WINDOW_S
            self._walks.clear()
        if now_s >= self._window_ends_s:
            self._walks.clear()
            return
        walk = self._walks.get(topic.name)
        if walk is None:
            walk = self._walks[topic.name] = _Walk(topic, partition)
        if partition not in walk.needed and (partition in walk.ahead or _is_cold(logs, topic, partition)):
            walk.needed.add(partition)
            self._prepare_next(walk, topic, fleet, logs)

    def _prepare_next(self, walk: _Walk, topic: Topic, fleet: FleetView, logs: LogRegistry) -> None:
        left = AHEAD
        while left and self._at_once < MAX_AT_ONCE:
            partition = next(walk.left, None)
            if partition is None:
                return
            if partition in walk.needed or not _is_cold(logs, topic, partition):
                continue
            if _leads(fleet, topic, partition):
                walk.ahead.add(partition)
                self._at_once += 1
                run_once("opening ahead", self._prepare(topic, partition, fleet, logs))
                left -= 1

    async def _prepare(self, topic: Topic, partition: int, fleet: FleetView, logs: LogRegistry) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                log = await logs.open(topic, partition)
                if _leads(fleet, topic, partition):
                    await log.prepare_for_producers()
        except (KafkaError, PulsarError, TimeoutError, OSError):
            """A batch that needs the log meets the same error, or no error any more."""
        finally:
            self._at_once -= 1


def _is_cold(logs: LogRegistry, topic: Topic, partition: int) -> bool:
    """Whether an idempotent batch would have to wait. The topic may have been created again, with fewer partitions."""
    found = logs.find(topic.name, partition)
    return partition < topic.partitions and (found is None or not found.producers.loaded)


def _leads(fleet: FleetView, topic: Topic, partition: int) -> bool:
    """As the only leader: another one could still write what the producers' state would then lack."""
    return fleet.role(topic.name, partition) is PartitionRole.LEADING
