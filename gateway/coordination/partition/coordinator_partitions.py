"""The partitions of one internal topic that this gateway may lead. It takes the partitions that the fleet places on it.

The topic is Kafka's topic of the kind: `__consumer_offsets` for groups. It is created if it does not exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import structlog

from coordinator.fleet.leadership import PartitionRole
from gateway.backoff import Backoff, retried
from gateway.coordination.partition.clock import WallClock
from gateway.coordination.partition.coordinator_partition import CoordinatorPartition
from gateway.coordination.partition.coordinators import CoordinatesNothing, Coordinators, partition_of
from gateway.coordination.partition.internal_topic import prepare_internal_topic
from gateway.coordination.partition.kind import C, CoordinatorKind, StandIns
from gateway.coordination.partition.log_trimming import LogTrimming
from gateway.coordination.partition.trimming_cursor import TrimmingCursor
from gateway.errors import KafkaError
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.topics.catalog import TopicCatalog
from gateway.topics.topic import Topic

PREPARE_PAUSE_S = 1.0
TRIED_CHECK_S = 0.01

T = TypeVar("T")
log = structlog.get_logger()


class Placement(Protocol):
    """The part of the fleet that places partitions."""

    def leads(self, topic: str, partition: int) -> bool: ...

    def role(self, topic: str, partition: int) -> PartitionRole: ...


class InternalTopicSpec(NamedTuple):
    """`partitions` is used when the gateway creates the topic. A snapshot is due after `segment_bytes`."""

    name: str
    partitions: int
    segment_bytes: int


class CoordinatorPartitions(Coordinators[C]):
    """Until the topic is known, every coordinator answers that it is loading."""

    def __init__(
        self,
        spec: InternalTopicSpec,
        kind: CoordinatorKind[C],
        client: PulsarClient,
        admin: AdminClient,
        topics: TopicCatalog,
        fleet: Placement,
        metrics: Metrics,
        clock: WallClock,
        on_loaded: Callable[[CoordinatorPartition[C], Any], None] = lambda partition, loaded: None,
    ) -> None:
        """`on_loaded` is called when a partition is served, with the result of `Coordinator.finish_loading`."""
        self._spec = spec
        self._kind = kind
        self._client = client
        self._admin = admin
        self._topics = topics
        self._fleet = fleet
        self._metrics = metrics
        self._clock = clock
        self._on_loaded = on_loaded
        self._stand_ins = StandIns(kind, clock.now_ms())
        self._snapshot_turn = asyncio.Lock()
        self._stopped = False

    def elsewhere(self) -> CoordinatesNothing[C]:
        """The coordinators that answer requests for partitions that other gateways lead."""
        return CoordinatesNothing(self._stand_ins, self._clock)

    async def prepare(self) -> None:
        """Create the topic if necessary, and read its partition count."""
        topic = await self._prepare_topic()
        self.partitions = [
            self._new_partition(topic.pulsar_topic(number), number) for number in range(topic.partitions)
        ]

    async def load(self) -> None:
        """Take the partitions that are placed here; return when each was tried once."""
        self.follow_placement()
        for number, partition in enumerate(self.partitions):
            while self.leads(number) and not partition.tried.is_set():
                await asyncio.sleep(TRIED_CHECK_S)

    async def stop(self) -> None:
        """Resign all partitions. No partition is taken any more, although the fleet still reports changes."""
        self._stopped = True
        await asyncio.gather(*(partition.resign() for partition in self.partitions))

    async def _prepare_topic(self) -> Topic:
        def try_again(error: Exception) -> bool:
            log.warning("internal topic is not ready", topic=self._spec.name, error=str(error))
            return isinstance(error, KafkaError | PulsarError)

        return await retried(
            lambda: prepare_internal_topic(self._topics, self._admin, *self._spec), try_again, Backoff(PREPARE_PAUSE_S)
        )

    def _new_partition(self, pulsar_topic: str, number: int) -> CoordinatorPartition[C]:
        trimming = LogTrimming(
            self._client,
            TrimmingCursor(self._client, self._admin, pulsar_topic),
            pulsar_topic,
            self._kind.barrier,
            self._clock.now_ms,
            self._spec.segment_bytes,
            self._snapshot_turn,
            self._metrics,
        )
        role = partial(self._fleet.role, self._spec.name, number)
        return CoordinatorPartition(
            self._client, pulsar_topic, self._kind, self._stand_ins, self._clock, role, trimming, self._on_loaded
        )

    # Requests

    def run(self, key: str, call: Callable[[C, int], T]) -> T:
        if not self.partitions:
            return call(self._stand_ins.loading, self._clock.now_ms())
        return self.partitions[partition_of(key, len(self.partitions))].run(call)

    # Leadership

    def leads(self, number: int) -> bool:
        return self._fleet.leads(self._spec.name, number)

    def follow_placement(self) -> None:
        """Take the partitions placed here: each waits until its previous leader has released it, and for the lease.

        The others are resigned at once. When `release_partitions` runs, they may be placed here again, although another
        gateway led them and wrote in between. An idle producer does not learn that it was fenced.
        """
        for number, partition in enumerate(self.partitions):
            if self.leads(number) and not self._stopped:
                partition.take()
            else:
                partition.start_resigning()

    def check_lease(self) -> None:
        """To be called when the lease may have expired."""
        for partition in self.partitions:
            partition.check_lease()

    async def release_partitions(self) -> None:
        """Wait for the partitions that were placed elsewhere, also if they are placed here again since."""
        self.follow_placement()
        await asyncio.gather(*(partition.wait_resigned() for partition in self.partitions))

    @property
    def load_failure(self) -> str | None:
        """Why partitions that are placed here are not served, if the last attempt to load one of them failed."""
        for number, partition in enumerate(self.partitions):
            if partition.load_failure is not None:
                return f"partition {number} of {self._spec.name} fails to load: {partition.load_failure}"
        return None
