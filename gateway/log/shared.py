"""What all logs of a gateway share."""

from __future__ import annotations

from collections.abc import Callable

from gateway.config.limits import Limits
from gateway.log.entries.decoding import DecodingThreads
from gateway.log.opening_turns import OpeningTurns
from gateway.log.reading.cache import TailCache
from gateway.log.reading.readers import CatchUpReaders
from gateway.log.resources import Resources
from gateway.log.writing.producer_ids import ProducerIds
from gateway.log.writing.producer_state import AllProducers
from gateway.log.writing.writer_names import NamedByBroker, WriterNames
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient

MAX_SCANS = 8
"""Scans that read at the same time. Each has about `SCANNED_AHEAD_BYTES` in memory, but at least an entry."""


class Shared:
    """Clients of Pulsar, limits, metrics, and the memory budgets."""

    def __init__(
        self,
        client: PulsarClient,
        admin: AdminClient,
        limits: Limits,
        metrics: Metrics,
        may_send_idempotent: Callable[[], bool],
        names: WriterNames | None = None,
    ) -> None:
        """``may_send_idempotent`` returns True while no other gateway can lead a partition that this one leads."""
        self.limits = limits
        self.decoding = DecodingThreads(limits.decoding_threads)
        turns, scan_turns = OpeningTurns(limits.max_log_openings), OpeningTurns(MAX_SCANS)
        self.resources = Resources(client, admin, limits, metrics, self.decoding, turns, scan_turns)
        self.may_send_idempotent = may_send_idempotent
        self.names = names or NamedByBroker()
        self.cache = TailCache(limits.cache_budget_bytes, metrics.cache_bytes)
        self.producer_ids = ProducerIds()
        self.producers = AllProducers(limits.max_producers, limits.producer_id_expiration_ms / 1000)
        self.readers = CatchUpReaders(client, admin, limits, metrics, self.decoding)

    def close_idle(self) -> None:
        """Close the readers, and forget the producers, that were not used for a while."""
        self.readers.close_idle()
        self.producers.expire()

    def close_namespace(self, namespace: str) -> None:
        """Close the connections to Pulsar of `tenant/namespace`, after all its logs are closed."""
        self.resources.client.connections.close_namespace(namespace)

    def close(self) -> None:
        """Called after all logs are closed."""
        self.decoding.close()
