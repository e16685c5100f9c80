"""Lag of the groups that this gateway coordinates, as Prometheus gauges.

Every REFRESH_S, each partition with a committed offset is read once, slowly enough to use less than a tenth of a
core. A scrape shows the results of that pass. A group's series disappear when its offsets are removed, or when its
coordinator moves to another gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import structlog
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from coordinator.topics import TopicPartition
from gateway.coordination.group_partition import GroupPartition, iter_committed
from gateway.errors import KafkaError
from gateway.log.reading.entry_lookup import EntryLookup
from gateway.log.registry import LogRegistry
from gateway.observability.metrics import PREFIX, Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position
from gateway.topics.catalog import TopicCatalog

REFRESH_S = 15.0
PAUSE_S = 0.01
"""The pause after each partition: reading its end costs a gateway a millisecond of CPU (measured)."""

log = structlog.get_logger()


class EndOffsets:
    """Reads the end offsets of logs, including logs that other gateways write."""

    def __init__(self, client: PulsarClient, admin: AdminClient, topics: TopicCatalog, logs: LogRegistry) -> None:
        self._client = client
        self._entries = EntryLookup(client, admin)
        self._topics = topics
        self._logs = logs
        self._known: dict[TopicPartition, tuple[Position, int]] = {}
        """The last entry, and the offset after it."""

    async def read(self, partition: TopicPartition) -> int | None:
        """None if there is no such partition. Raises PulsarError and KafkaError."""
        topic = await self._topics.get(partition.topic)
        if topic is None or partition.partition >= topic.partitions:
            return None
        pulsar_topic = topic.pulsar_topic(partition.partition)
        last = await self._client.last_position(pulsar_topic)
        known_last, end = self._known.get(partition, (None, 0))
        if known_last != last:
            opened = self._logs.find(*partition)
            if opened is not None and opened.source.last_position >= last:
                end = opened.end_offset
            else:
                end = await self._entries.end(pulsar_topic, last)
            self._known[partition] = (last, end)
        return end

    def keep_only(self, partitions: set[TopicPartition]) -> None:
        self._known = {partition: known for partition, known in self._known.items() if partition in partitions}


class GroupLag(Collector):
    def __init__(
        self, ends: EndOffsets, partitions: Callable[[], Sequence[GroupPartition]], metrics: Metrics, max_series: int
    ) -> None:
        self._ends = ends
        self._partitions = partitions
        self._max_series = max_series
        self._series: dict[tuple[str, TopicPartition], int] = {}
        self._coordinators: dict[str, GroupPartition] = {}
        """The coordinators by group. While one does not serve, its groups have no gauges: other gateways may."""
        self._omitted = 0
        metrics.register(self)

    def collect(self) -> Iterator[Metric]:
        lag = GaugeMetricFamily(
            f"{PREFIX}group_lag", "Records from a group's committed offset to the end of the log",
            labels=("group", "topic", "partition"),
        )  # fmt: skip
        for (group, (topic, partition)), records in self._series.items():
            if self._coordinators[group].serves:
                lag.add_metric((group, topic, str(partition)), records)
        yield lag
        yield GaugeMetricFamily(
            f"{PREFIX}group_lag_omitted", "Committed offsets whose lag is not shown: too many", self._omitted
        )

    async def follow(self) -> None:
        """Keep the gauges up to date, until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(REFRESH_S)

    async def refresh(self) -> None:
        coordinators: dict[str, GroupPartition] = {}
        committed, self._omitted = await self._committed(coordinators)
        partitions = {partition for _, partition in committed}
        self._ends.keep_only(partitions)
        ends: dict[TopicPartition, int] = {}
        for partition in partitions:
            try:
                end = await self._ends.read(partition)
            except (PulsarError, KafkaError, TimeoutError) as error:
                facts = {"topic": partition.topic, "partition": partition.partition}
                log.info("cannot read the end of a log", **facts, error=str(error))
                continue
            if end is not None:
                ends[partition] = end
            await asyncio.sleep(PAUSE_S)
        self._coordinators = coordinators
        self._series = {
            key: max(0, ends[key[1]] - offset) for key, offset in committed.items() if key[1] in ends
        }  # fmt: skip

    async def _committed(
        self, coordinators: dict[str, GroupPartition]
    ) -> tuple[dict[tuple[str, TopicPartition], int], int]:
        """The first `max_series` committed offsets, and the number of further ones. Adds the groups' coordinators."""
        committed: dict[tuple[str, TopicPartition], int] = {}
        omitted = 0
        for coordinator in self._partitions():
            async for group, offsets in iter_committed(coordinator):
                room = self._max_series - len(committed)
                omitted += max(0, len(offsets) - room)
                if room > 0:
                    coordinators[group] = coordinator
                    some = islice(offsets.items(), room)
                    committed |= {(group, partition): offset for partition, offset in some}
        return committed, omitted
