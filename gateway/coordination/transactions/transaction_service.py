"""Transactions of this gateway: their coordinators, over `__transaction_state`."""

from __future__ import annotations

from coordinator.transaction.config import TransactionConfig
from coordinator.transaction.coordinator import TransactionCoordinator
from coordinator.transaction.ports import Markers
from coordinator.transaction.records.transaction_log import BARRIER
from gateway.config import TransactionsSection
from gateway.coordination.partition.clock import WallClock
from gateway.coordination.partition.coordinator_partitions import (
    CoordinatorPartitions,
    InternalTopicSpec,
    Placement,
)
from gateway.coordination.partition.kind import CoordinatorKind, OwnLog
from gateway.log.writing.producer_ids import ProducerIds
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.topics.catalog import TopicCatalog
from gateway.topics.topic_names import TRANSACTION_STATE

TRANSACTION_VERSION = 0
"""Kafka's `transaction.version`: 2 begins when the producers' side of KIP-890 is served."""


class TransactionService:
    def __init__(
        self,
        client: PulsarClient,
        admin: AdminClient,
        topics: TopicCatalog,
        fleet: Placement,
        config: TransactionsSection,
        producer_ids: ProducerIds,
        markers: Markers,
        metrics: Metrics,
    ) -> None:
        self._config = _transaction_config(config)
        self._producer_ids = producer_ids
        self._markers = markers
        spec = InternalTopicSpec(TRANSACTION_STATE, config.state_topic_partitions, config.state_topic_segment_bytes)
        self.coordinators: CoordinatorPartitions[TransactionCoordinator] = CoordinatorPartitions(
            spec, CoordinatorKind(self._new_coordinator, BARRIER), client, admin, topics, fleet, metrics, WallClock()
        )

    def _new_coordinator(self, log: OwnLog) -> TransactionCoordinator:
        return TransactionCoordinator(
            self._config,
            log,
            self._markers,
            self._producer_ids.allocate,
            lambda: log.epoch,
            lambda: TRANSACTION_VERSION,
        )


def _transaction_config(section: TransactionsSection) -> TransactionConfig:
    return TransactionConfig(max_timeout_ms=section.max_timeout_ms, id_expiration_ms=section.id_expiration_ms)
