"""The Kafka cluster that a client sees: one Pulsar namespace with its topics, logs and groups, served by a fleet."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from coordinator.group.coordinator import GroupCoordinator
from coordinator.transaction.coordinator import TransactionCoordinator
from gateway.config.gateway_config import Config
from gateway.coordination.groups.group_service import GroupService
from gateway.coordination.partition.coordinators import Coordinators
from gateway.coordination.transactions.marker_links import MarkerLinks
from gateway.coordination.transactions.newest_connections import NewestConnections
from gateway.coordination.transactions.verifier import Verifier
from gateway.fetching.fetch_session import FetchSessions
from gateway.fetching.fetch_waits import FetchWaits
from gateway.fetching.remembered_partitions import RememberedPartitions
from gateway.fleet.view import FleetView
from gateway.log.registry import LogRegistry
from gateway.log.writing.producer_ids import ProducerIds
from gateway.observability.metrics import Metrics
from gateway.requests.openings_ahead import OpeningsAhead
from gateway.requests.partition_rows import PartitionRows
from gateway.security.security import Security
from gateway.topics.catalog import TopicCatalog


@dataclass(frozen=True, slots=True)
class Node:
    """A gateway as clients see it: a Kafka broker."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class ClusterRefused(Exception):
    """A client may not use the cluster, or the cluster cannot be served. The text is one of a small set."""


@dataclass(slots=True)
class Unread:
    """Bytes of answers that clients have not read: the memory that is held by clients that stopped reading."""

    size_bytes: int = 0
    of_connections_bytes: int = 0
    """The part that connections hold; the rest is held elsewhere."""
    budget_bytes: float = math.inf
    """The budget of connections: above it, some connections are closed."""


@dataclass(slots=True)
class Usage:
    """What the clients of a cluster use of this gateway."""

    connections: int = 0
    """The present number. Connections are counted only if there are several clusters."""
    bytes_in: int = 0
    bytes_out: int = 0
    started_ms: int = field(default_factory=lambda: int(time.time() * 1000))
    """Since the epoch: when the gateway began to count."""
    has_ended: bool = False
    """The cluster was closed here, and takes no connections any more."""

    def count_on(self, before: Usage | None) -> None:
        """Continue the counters from before the cluster was closed."""
        if before is not None:
            self.bytes_in += before.bytes_in
            self.bytes_out += before.bytes_out
            self.started_ms = before.started_ms


@dataclass(frozen=True, slots=True)
class Cluster:
    """What handlers work with; the composition root creates it."""

    config: Config
    metrics: Metrics
    fleet: FleetView
    topics: TopicCatalog
    logs: LogRegistry
    producer_ids: ProducerIds
    fetch_sessions: FetchSessions
    unread: Unread
    groups: Coordinators[GroupCoordinator]
    group_service: GroupService
    transactions: Coordinators[TransactionCoordinator]
    verifier: Verifier
    marker_links: MarkerLinks
    producer_connections: NewestConnections
    """The connections over which producers talk to their transaction coordinator."""
    offset_connections: NewestConnections
    """The connections over which producers commit offsets of groups: a client may use another connection for that."""
    security: Security
    partition_rows: PartitionRows = field(default_factory=PartitionRows)
    openings_ahead: OpeningsAhead = field(default_factory=OpeningsAhead)
    fetch_waits: FetchWaits = field(default_factory=FetchWaits)
    fetched_tails: RememberedPartitions = field(default_factory=RememberedPartitions)
    """The logs at whose ends connections fetch again and again."""
    relayed_partitions: RememberedPartitions = field(default_factory=RememberedPartitions)
    """Those in fetch sessions that clients have with other gateways, through this one."""
    usage: Usage = field(default_factory=Usage)

    @property
    def node_id(self) -> int:
        """The node id of this gateway."""
        return self.fleet.node_id

    @property
    def cluster_id(self) -> str:
        return self.config.kafka.cluster_id or self.fleet.cluster_id

    @property
    def node(self) -> Node:
        """This gateway, with the address of its first listener."""
        address = self.fleet.address
        return Node(self.fleet.node_id, address.host, address.port, self.config.kafka.rack)
