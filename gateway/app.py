"""The composition root: makes the parts of a gateway, starts them in order, and stops them in reverse."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import repeat

import structlog

from coordinator.fleet.messages import Address
from coordinator.topics import DeletedTopic
from gateway.background import BackgroundFailure, FailureHandler, TaskGroup
from gateway.backoff import Backoff, retried
from gateway.config import DEFAULT_LISTENER, FORWARDING_LISTENER, Config
from gateway.coordination.groups.group_service import GroupService
from gateway.coordination.transactions.marker_links import MarkerLinks, client_ids
from gateway.coordination.transactions.transaction_service import TransactionService
from gateway.coordination.transactions.verifier import Verifier
from gateway.dispatch import Dispatcher
from gateway.fetching.fetch_session import FetchSessions
from gateway.fleet.asking import PeerLostError
from gateway.fleet.fleet import Fleet, FleetListener, NodeIdInUse
from gateway.fleet.view import LeadsNothing
from gateway.forwarding.forwarder import FleetLeaders, Forwarding
from gateway.forwarding.peer_requests import PeerRequests
from gateway.forwarding.peers import Peers
from gateway.garbage_collection import GarbageCollection
from gateway.health import HealthServer
from gateway.listener_config import AddressSection
from gateway.log.registry import LogRegistry
from gateway.log.shared import Shared
from gateway.login.service import LoginService
from gateway.namespace import prepare_namespaces
from gateway.network.server import KafkaServer
from gateway.observability.loop_watchdog import LoopWatchdog
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.connection import ConnectionState
from gateway.pulsar.errors import PulsarError
from gateway.requests.broker_configs import topic_defaults
from gateway.requests.cluster import Cluster, Unread
from gateway.requests.partition_rows import PartitionRows
from gateway.topics.catalog import TopicCatalog, TopicListener
from protocol.kafka.messages.records import WriteTxnMarkersRequest, WriteTxnMarkersResponse

HOUSEKEEPING_S = 5.0
WAIT_FOR_PULSAR_S = 2.0

log = structlog.get_logger()


@dataclass
class _PulsarEvents:
    """Counts connections to brokers by state."""

    metrics: Metrics
    _states: dict[str, ConnectionState] = field(default_factory=dict)

    def on_connection_state(self, broker_url: str, state: ConnectionState, error: PulsarError | None) -> None:
        log.info("pulsar connection", broker=broker_url, state=state.name, error=str(error) if error else None)
        self._states[broker_url] = state
        for each in ConnectionState:
            count = sum(1 for known in self._states.values() if known is each)
            self.metrics.pulsar_connections.labels(each.name.lower()).set(count)


class _Changes(FleetListener, TopicListener):
    """Who hears of what happens in the fleet and to topics, in this order."""

    def __init__(
        self,
        fleet: Fleet,
        topics: TopicCatalog,
        partition_rows: PartitionRows,
        logs: LogRegistry,
        groups: GroupService,
        transactions: TransactionService,
        tasks: TaskGroup,
    ) -> None:
        self._fleet = fleet
        self._topics = topics
        self._partition_rows = partition_rows
        self._logs = logs
        self._groups = groups
        self._coordinators = (groups.coordinators, transactions.coordinators)
        self._tasks = tasks
        fleet.subscribe(self)
        topics.subscribe(self)

    def leaders_changed(self) -> None:
        for coordinators in self._coordinators:
            coordinators.take_placed()
        # At once: a gateway that leads again when `release_partitions` runs may not have led all the time.
        self._logs.start_closing(self._is_led_elsewhere)

    async def release_partitions(self) -> None:
        await asyncio.gather(
            *(coordinators.release_partitions() for coordinators in self._coordinators),
            self._logs.close_those(self._is_led_elsewhere),
        )

    def lease_lost(self) -> None:
        self._logs.on_lease_lost()
        for coordinators in self._coordinators:
            coordinators.check_lease()

    def topics_deleted(self, topics: Collection[DeletedTopic]) -> None:
        for topic in topics:
            if self._topics.forget(topic.name, topic.topic_id):
                self.topic_gone(topic.name)
        self._groups.forget_topics(topics)

    def topic_changed(self, name: str) -> None:
        self._groups.subscribed_topics.topic_changed(name)

    def topic_gone(self, name: str) -> None:
        self._partition_rows.forget(name)
        self._tasks.run_once("forget topic", self._logs.forget_topic(name))

    def _is_led_elsewhere(self, topic: str, partition: int) -> bool:
        return not self._fleet.leads(topic, partition)


def _advertised(listener: AddressSection, port: int) -> Address:
    return Address(host=listener.advertised_host or listener.host, port=listener.advertised_port or port)


class Gateway:
    """One gateway: ``start`` it in an event loop, ``stop`` it in the same."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._loop = asyncio.get_running_loop()
        self.metrics = Metrics()
        self._failures = FailureHandler(self.metrics)
        self._watchdog = LoopWatchdog(self.metrics)
        self._garbage = GarbageCollection()
        self._admin = AdminClient(config.pulsar)
        self._client = PulsarClient(config.pulsar, _PulsarEvents(self.metrics))
        self._fleet = Fleet(self._client, self._admin, config.pulsar.full_system_namespace, config.fleet)
        self._shared = Shared(self._client, self._admin, config.limits, self.metrics, self._fleet.may_send_idempotent)
        self._topics = TopicCatalog(
            self._admin, config.pulsar.full_namespace, config.limits.metadata_max_age_ms, topic_defaults(config),
            config.pulsar.full_system_namespace, timeout_ms=config.limits.metadata_timeout_ms,
        )  # fmt: skip
        self._partition_rows = PartitionRows()
        self._logs = LogRegistry(self._shared, self._topics.is_compacted)
        self._groups = GroupService(
            self._client, self._admin, self._topics, self._fleet, config.groups, self._logs, self.metrics
        )
        self._peers = Peers(self._fleet)
        to_leaders = PeerRequests(self._peers, client_ids())
        to_coordinators = PeerRequests(self._peers, repeat("verification"))
        self._peer_requests = (to_leaders, to_coordinators)
        self._transactions = TransactionService(
            self._client, self._admin, self._topics, self._fleet, config.transactions, self._shared.producer_ids,
            to_leaders, self._write_markers, self.metrics,
        )  # fmt: skip
        self._verifier = Verifier(self._transactions.coordinators, self._fleet, to_coordinators)
        self.metrics.fleet_members.set_function(lambda: len(self._fleet.members))
        self.metrics.fleet_epoch.set_function(lambda: self._fleet.epoch)
        self.metrics.fleet_lease.set_function(lambda: self._fleet.state.permissions.coordinates)
        self.metrics.tasks.set_function(lambda: len(asyncio.all_tasks(self._loop)))
        self._tasks = TaskGroup()
        _Changes(
            self._fleet, self._topics, self._partition_rows, self._logs, self._groups, self._transactions, self._tasks
        )
        self._server: KafkaServer | None = None
        self._logins: LoginService | None = None
        self._not_ready: str | None = "starting"
        self._health = HealthServer(
            config.http.host, config.http.port, self.metrics, lambda: self._failures.reason, self._why_not_ready
        )

    @property
    def expelled(self) -> asyncio.Future[NodeIdInUse]:
        """Done when this gateway has to stop, because another one has its node id."""
        return self._fleet.expelled

    @property
    def failed(self) -> asyncio.Future[BackgroundFailure]:
        """Done when this gateway has to stop, because a part of it keeps failing."""
        return self._failures.failed

    async def start(self) -> None:
        """Raises UnfitCluster, UnfitCertificate, UnfitKey, NodeIdInUse, PulsarError or OSError."""
        self._watchdog.start()
        self._garbage.start()
        await self._health.start()
        await self._wait_for_pulsar()
        unread = Unread()
        cluster = Cluster(
            self.config, self.metrics, self._fleet, self._topics, self._logs, self._shared.producer_ids,
            FetchSessions(self.config.limits.max_fetch_sessions),
            unread, self._groups.coordinators, self._groups, self._transactions.coordinators,
            self._verifier, MarkerLinks(), self._partition_rows,
        )  # fmt: skip
        dispatcher = Dispatcher(cluster, self._new_forwarding(cluster))
        if any(listener.speaks_sasl for listener in self.config.kafka.all_listeners):
            self._logins = await LoginService.start(self.config, self.metrics)
        self._server = KafkaServer(self.config, dispatcher, self.metrics, unread, self._logins)
        ports = await self._server.bind()
        await self._join_fleet(ports)
        await self._server.start()
        self._tasks.keep_running("housekeeping", self._keep_house)
        self._not_ready = "loading consumer groups and transactions"
        await asyncio.gather(self._groups.start(), self._transactions.start())
        self._not_ready = None
        log.info("serving", ports=ports, namespace=self.config.pulsar.full_namespace)

    async def _write_markers(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        raise PeerLostError("markers are not written yet")

    def _new_forwarding(self, cluster: Cluster) -> Forwarding | None:
        if not any(listener.single_address for listener in self.config.kafka.all_listeners):
            return None
        elsewhere = replace(
            cluster, fleet=LeadsNothing(self._fleet), groups=self._groups.coordinators.elsewhere(),
            transactions=self._transactions.coordinators.elsewhere(),
        )  # fmt: skip
        return Forwarding(self._peers, FleetLeaders(cluster), elsewhere)

    async def stop(self) -> None:
        """Clients hear who leads in our place before their connections end."""
        self._not_ready = "stopping"
        await self._fleet.hand_over()
        if self._server is not None:
            await self._server.stop()
        if self._logins is not None:
            await self._logins.close()
        await asyncio.gather(self._groups.stop(), self._transactions.stop())
        await self._verifier.close()
        for requests in self._peer_requests:
            requests.close()
        await self._tasks.close()
        await self._logs.close()
        await self._fleet.leave()
        await self._client.close()
        await self._topics.close()
        await self._admin.close()
        await self._health.stop()
        self._garbage.stop()
        self._watchdog.stop()

    def _why_not_ready(self) -> str | None:
        """A gateway that is cut off still answers, so its clients would stay, but it can write nothing."""
        if self._not_ready is None and not self._fleet.state.permissions.is_ready:
            return "cut off: Pulsar confirms nothing"
        return self._not_ready or self._groups.coordinators.load_failure or self._transactions.coordinators.load_failure

    async def _wait_for_pulsar(self) -> None:
        self._not_ready = "waiting for Pulsar"
        log.info("connecting to Pulsar", admin_url=self.config.pulsar.admin_url)
        await self._until_pulsar_is_there(lambda: prepare_namespaces(self._admin, self.config.pulsar))

    async def _until_pulsar_is_there(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """A gateway may start before its Pulsar."""

        def try_again(error: Exception) -> bool:
            if not (isinstance(error, TimeoutError) or (isinstance(error, PulsarError) and error.retriable)):
                return False
            self._not_ready = f"waiting for Pulsar: {error}"
            log.warning("waiting for Pulsar", error=str(error))
            return True

        await retried(attempt, try_again, Backoff(WAIT_FOR_PULSAR_S))

    async def _join_fleet(self, ports: Mapping[str, int]) -> None:
        self._not_ready = "joining the fleet"
        kafka, forwarding = self.config.kafka, self.config.fleet.forwarding
        addresses = {each.name: _advertised(each, ports[each.name]) for each in kafka.all_listeners}
        inside = None if forwarding is None else _advertised(forwarding, ports[FORWARDING_LISTENER])
        instance = f"{socket.gethostname()} {kafka.host}:{ports[DEFAULT_LISTENER]}"
        await self._until_pulsar_is_there(
            lambda: self._fleet.join(kafka.node_id, instance, addresses, inside, kafka.rack)
        )

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            try:
                await self._logs.close_stalled()
                await self._logs.close_idle()
            except PulsarError as error:
                log.warning("housekeeping", error=str(error))
            self._garbage.keep_house()
