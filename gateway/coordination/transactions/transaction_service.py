"""The transactions of this gateway: their coordinators, and the topic `__transaction_state`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from coordinator.transaction.config import TransactionConfig
from coordinator.transaction.coordinator import TransactionCoordinator
from coordinator.transaction.open_transactions import OpenTransactions
from coordinator.transaction.ports import SlowTransaction
from coordinator.transaction.records.transaction_log import BARRIER
from coordinator.transaction.states import TransactionState
from gateway.config.gateway_config import TransactionsSection
from gateway.coordination.partition.clock import WallClock
from gateway.coordination.partition.coordinator_partitions import (
    CoordinatorPartitions,
    InternalTopicSpec,
)
from gateway.coordination.partition.kind import CoordinatorKind, OwnLog
from gateway.coordination.transactions.marker_sender import MarkerSender, WriteHere
from gateway.fleet.peers import Peers
from gateway.fleet.view import FleetView
from gateway.log.writing.producer_ids import ProducerIds
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.topics.catalog import TopicCatalog
from gateway.topics.topic_names import TRANSACTION_STATE

TRANSACTION_VERSION = 2
"""The highest of Kafka's `transaction.version` that this gateway serves."""

REPORTED = 5
"""How many transactions that lack markers are logged, and how many partitions of each: there may be thousands."""
log = structlog.get_logger()

_RESULTS = {TransactionState.COMPLETE_COMMIT: "commit", TransactionState.COMPLETE_ABORT: "abort"}


class TransactionService:
    def __init__(
        self,
        client: PulsarClient,
        admin: AdminClient,
        topics: TopicCatalog,
        fleet: FleetView,
        config: TransactionsSection,
        producer_ids: ProducerIds,
        peers: Peers,
        write_here: WriteHere,
        metrics: Metrics,
    ) -> None:
        """`write_here` writes markers to the partitions that this gateway leads; `peers` sends the others."""
        self._fleet = fleet
        self._config = _transaction_config(config)
        self._producer_ids = producer_ids
        self._markers = MarkerSender(fleet, topics, peers, write_here, self._in_turn, self._serves)
        self._clock = WallClock()
        self._metrics = metrics
        spec = InternalTopicSpec(TRANSACTION_STATE, config.state_topic_partitions, config.state_topic_segment_bytes)
        self.coordinators: CoordinatorPartitions[TransactionCoordinator] = CoordinatorPartitions(
            spec, CoordinatorKind(self._new_coordinator, BARRIER), client, admin, topics, fleet, metrics, self._clock
        )
        metrics.transactions_open.set_function(self.count_open)
        metrics.transactions_oldest_seconds.set_function(self._oldest_s)
        self._starting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Prepare the topic and load the partitions placed here; return when each was tried once."""
        self._starting = asyncio.create_task(self._start())
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        await self.coordinators.prepare()
        await self.coordinators.load()

    async def stop(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        await self.coordinators.stop()
        await self._markers.close()

    def count_open(self) -> int:
        """The number of transactions coordinated here that are not complete."""
        return sum(len(partition.run(_open_transactions)) for partition in self.coordinators.partitions)

    def _oldest_s(self) -> float:
        found = (partition.run(_open_transactions).oldest_ms for partition in self.coordinators.partitions)
        oldest_ms = min((began_ms for began_ms in found if began_ms is not None), default=None)
        return 0 if oldest_ms is None else max(0, self._clock.now_ms() - oldest_ms) / 1000

    def _in_turn(self, transactional_id: str, call: Callable[[int], None]) -> None:
        self.coordinators.run(transactional_id, lambda coordinator, now_ms: call(now_ms))

    def _serves(self, transactional_id: str) -> bool:
        number = self.coordinators.partition_of(transactional_id)
        return number is not None and self.coordinators.partitions[number].serves

    def _new_coordinator(self, log: OwnLog) -> TransactionCoordinator:
        return TransactionCoordinator(
            self._config,
            log,
            self._markers,
            self._producer_ids.allocate,
            lambda: log.epoch,
            lambda: max(0, self._fleet.transaction_version),
            lambda state: self._metrics.transactions.labels(_RESULTS[state]).inc(),
            _report_slow,
        )


def _report_slow(slow: Sequence[SlowTransaction]) -> None:
    """Logs the transactions that have waited longest: all of them may wait for the same partition."""
    for each in sorted(slow, key=lambda each: each.seconds, reverse=True)[:REPORTED]:
        missing = [f"{topic}-{number}" for topic, number in sorted(each.partitions)]
        log.warning(
            "a transaction waits for markers", transactional_id=each.transactional_id, producer_id=each.producer_id,
            seconds=each.seconds, partitions=missing[:REPORTED], missing=len(missing), fenced=len(each.fenced),
            of=len(slow),
        )  # fmt: skip


def _open_transactions(coordinator: TransactionCoordinator, now_ms: int) -> OpenTransactions:
    return coordinator.open_transactions


def _transaction_config(section: TransactionsSection) -> TransactionConfig:
    return TransactionConfig(max_timeout_ms=section.max_timeout_ms, id_expiration_ms=section.id_expiration_ms)
