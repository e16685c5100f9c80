"""The services of one cluster: a Pulsar namespace with its topics, logs, groups and transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import repeat
from typing import NamedTuple

from coordinator.fleet.messages import Member
from gateway.background import TaskGroup
from gateway.clusters.changes import Changes
from gateway.config.gateway_config import Config
from gateway.coordination.groups.group_service import GroupService
from gateway.coordination.groups.group_transactions import group_transactions
from gateway.coordination.transactions.cleaning import Cleaning
from gateway.coordination.transactions.marker_links import MarkerLinks, client_ids
from gateway.coordination.transactions.newest_connections import NewestConnections
from gateway.coordination.transactions.own_checkpoints import OwnCheckpoints
from gateway.coordination.transactions.reconciliation import Reconciliation
from gateway.coordination.transactions.stable_offset_lag import last_stable_offset_lag
from gateway.coordination.transactions.transaction_service import TransactionService
from gateway.coordination.transactions.verifier import Verifier
from gateway.dispatch import ServedCluster
from gateway.fetching.fetch_session import FetchSessions
from gateway.fetching.fetch_waits import FetchWaits
from gateway.fetching.remembered_partitions import FOR_A_CONNECTION, RememberedPartitions
from gateway.fleet.peers import PeerLostError
from gateway.fleet.view import ClusterFleet, LeadsNothing
from gateway.forwarding.fleet_leaders import FleetLeaders
from gateway.forwarding.forwarder import Forwarding
from gateway.forwarding.peer_requests import PeerRequests
from gateway.forwarding.peer_security import PeerSecurity
from gateway.forwarding.peers import Peers
from gateway.handlers.records.write_txn_markers import write_markers
from gateway.log.registry import LogRegistry
from gateway.log.shared import Shared
from gateway.metering.meter import Meter
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.requests.broker_configs import topic_defaults
from gateway.requests.cluster import Cluster, Unread
from gateway.requests.partition_rows import PartitionRows
from gateway.security.security import new_security
from gateway.security.security_log import TOPIC as SECURITY
from gateway.topics.catalog import TopicCatalog
from protocol.kafka.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from protocol.kafka.messages.records import WriteTxnMarkersRequest, WriteTxnMarkersResponse

OPEN_ELSEWHERE_S = 30.0


class ProcessParts(NamedTuple):
    """The parts that all clusters of a gateway share."""

    client: PulsarClient
    admin: AdminClient
    shared: Shared
    peer_security: PeerSecurity | None
    """If set, gateways use TLS with each other."""
    metrics: Metrics


class ClusterServices:
    """Call `start` when the gateway is a member of the fleet, and `stop` before it leaves."""

    def __init__(self, config: Config, fleet: ClusterFleet, parts: ProcessParts, name: str | None = None) -> None:
        """`config` is the cluster's own: its `pulsar` names the namespace. The fleet's own cluster has no `name`."""
        self._config = config
        self._fleet = fleet
        self._peers = Peers(fleet, config.kafka.open_listener, parts.peer_security, name)
        client, admin, shared = parts.client, parts.admin, parts.shared
        metrics = parts.metrics if name is None else parts.metrics.of_cluster(name)
        self._topics = TopicCatalog(
            admin, config.pulsar.full_namespace, config.limits.metadata_max_age_ms, topic_defaults(config),
            config.pulsar.full_system_namespace, timeout_ms=config.limits.metadata_timeout_ms,
            fleet_turn=fleet.topic_turn,
        )  # fmt: skip
        partition_rows = PartitionRows()
        self._logs = LogRegistry(shared, self._topics.compaction, fleet.leads)
        self._groups = GroupService(client, admin, self._topics, fleet, config.groups, self._logs, metrics)
        to_leaders = PeerRequests(self._peers, client_ids())
        to_coordinators = PeerRequests(self._peers, repeat("verification"))
        self._peer_requests = [to_leaders, to_coordinators]
        self._transactions = TransactionService(
            client, admin, self._topics, fleet, config.transactions, shared.producer_ids, to_leaders,
            self._write_markers, metrics,
        )  # fmt: skip
        self._verifier = Verifier(self._transactions.coordinators, fleet, to_coordinators)
        self._reconciliation = Reconciliation(
            self._transactions.coordinators, fleet, to_coordinators, self._logs,
            lambda: group_transactions(self._groups.coordinators.partitions), self._write_markers,
            config.transactions.max_timeout_ms, metrics,
        )  # fmt: skip
        metrics.last_stable_offset_lag.set_function(lambda: last_stable_offset_lag(self._logs, fleet))
        self._cleaning = Cleaning(
            fleet, self._logs, self._topics.cached, self._topics.begin_transactions, metrics
        )
        self._own_checkpoints = OwnCheckpoints(fleet, self._logs)
        self.security = new_security(
            client, admin, config.pulsar, config.authorization, config.limits.max_security_bytes,
            lambda: fleet.leads(SECURITY, 0),
        )  # fmt: skip
        metrics.security_log_unread_seconds.set_function(lambda: self.security.unread_s)
        self._tasks, self._starting = TaskGroup(), TaskGroup()
        changes = Changes(
            fleet, self._topics, partition_rows, self._logs, self._groups, self._transactions, self._tasks
        )
        fleet.subscribe(changes)
        self._topics.subscribe(changes)
        cluster = self._new_cluster(shared, metrics, partition_rows)
        meter = Meter(self.security.quotas)
        self.served = ServedCluster(cluster, self._new_forwarding(cluster), self.security.authorizer, meter)

    def _new_cluster(self, shared: Shared, metrics: Metrics, partition_rows: PartitionRows) -> Cluster:
        """What handlers get."""
        limits = self._config.limits
        return Cluster(
            self._config, metrics, self._fleet, self._topics, self._logs, shared.producer_ids,
            FetchSessions(limits.max_fetch_sessions), Unread(budget_bytes=limits.unread_budget_bytes),
            self._groups.coordinators, self._groups, self._transactions.coordinators, self._verifier, MarkerLinks(),
            NewestConnections(), NewestConnections(),
            self.security, partition_rows, fetch_waits=FetchWaits(limits.requests_budget_bytes),
            fetched_tails=RememberedPartitions(limits.max_connections * FOR_A_CONNECTION),
            relayed_partitions=RememberedPartitions(limits.max_connections * FOR_A_CONNECTION),
        )  # fmt: skip

    def _new_forwarding(self, cluster: Cluster) -> Forwarding | None:
        if not any(listener.single_address for listener in self._config.kafka.all_listeners):
            return None
        elsewhere = replace(
            cluster, fleet=LeadsNothing(self._fleet), groups=self._groups.coordinators.elsewhere(),
            transactions=self._transactions.coordinators.elsewhere(),
        )  # fmt: skip
        return Forwarding(self._peers, FleetLeaders(cluster), elsewhere)

    def requests_to_gateways(self, client_id: str) -> PeerRequests:
        """For requests of the gateway itself; closed with the services."""
        requests = PeerRequests(self._peers, repeat(client_id))
        self._peer_requests.append(requests)
        return requests

    async def load_rights(self) -> None:
        """Await this before clients may send requests: they would take an earlier denial for a final answer.

        Raises InvalidAuthorizer, or PulsarError if Pulsar cannot be queried.
        """
        await self.security.start(with_users=any(each.speaks_sasl for each in self._config.kafka.all_listeners))

    async def start(self) -> None:
        """Return after the first attempt to load each partition of the internal topics that is placed here."""
        await asyncio.gather(self._groups.start(), self._transactions.start())
        self._tasks.keep_running("reconciliation of transactions", self._reconciliation.follow)
        self._tasks.keep_running("cleaning of compacted topics", self._cleaning.follow)
        self._tasks.keep_running("checkpoints of copied logs", self._own_checkpoints.follow)

    def begin_to_start(self) -> None:
        """Start in the background."""
        self._starting.run_once("start of a cluster", self.start())

    async def open_elsewhere(self, member: Member) -> bool:
        """Have another gateway open the cluster. Return False if it does not answer."""
        requests = PeerRequests(self._peers, repeat("opening"))
        try:
            await requests.ask(member, 0, ApiVersionsRequest(), ApiVersionsResponse, OPEN_ELSEWHERE_S)
        except PeerLostError:
            return False
        finally:
            requests.close()
        return True

    async def stop(self) -> None:
        """On return, everything in flight is in Pulsar or has failed."""
        await self._starting.close()
        await asyncio.gather(self._groups.stop(), self._transactions.stop())
        await self._verifier.close()
        await self.security.close()
        for requests in self._peer_requests:
            requests.close()
        await self._tasks.close()
        await self._logs.close()
        await self._topics.close()

    @property
    def is_busy(self) -> bool:
        """True while transactions are open that this gateway coordinates."""
        return self._transactions.count_open() > 0

    @property
    def is_deleted(self) -> bool:
        """True if the cluster's system namespace was deleted, or what administrators had set."""
        return self.security.is_deleted

    @property
    def load_failure(self) -> str | None:
        """Why groups or transactions are not served, if the last attempt to load them failed."""
        return self._groups.coordinators.load_failure or self._transactions.coordinators.load_failure

    async def keep_house(self) -> None:
        """Close stalled logs, and logs that nobody has used for a while. Raises PulsarError."""
        await self._logs.close_stalled()
        await self._logs.close_idle()

    async def _write_markers(
        self, request: WriteTxnMarkersRequest, still_wanted: Callable[[], bool] = lambda: True
    ) -> WriteTxnMarkersResponse:
        return await write_markers(self.served.cluster, request, still_wanted)
