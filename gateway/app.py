"""The composition root: creates the parts of a gateway, starts them in order, and stops them in reverse order."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import structlog

from coordinator.fleet.messages import Address
from gateway import freed_memory
from gateway.background import BackgroundFailure, FailureHandler, TaskGroup, run_once
from gateway.backoff import Backoff, retried
from gateway.clusters.clusters import Clusters
from gateway.clusters.configs import with_share
from gateway.clusters.services import ClusterServices, ProcessParts
from gateway.config.gateway_config import DEFAULT_LISTENER, FORWARDING_LISTENER, Config
from gateway.config.listeners import AddressSection, is_unspecified
from gateway.coordination.transactions.transaction_service import TRANSACTION_VERSION
from gateway.dispatch import Dispatcher, prepare_fetch
from gateway.fleet.fleet import Fleet, NodeIdInUse
from gateway.forwarding.peer_security import PeerSecurity
from gateway.garbage_collection import GarbageCollection
from gateway.health import HealthServer
from gateway.log.shared import Shared
from gateway.login.service import LoginService
from gateway.namespace import prepare_namespaces
from gateway.network.server import KafkaServer
from gateway.observability.loop_watchdog import LoopWatchdog
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.connection import ConnectionState
from gateway.pulsar.errors import ClientClosedError, PulsarError

HOUSEKEEPING_S = 5.0
WAIT_FOR_PULSAR_S = 2.0
CLOSED_SHOWN_S = 600.0
"""Metrics count a broker without a connection for this time: it may be gone for good."""

log = structlog.get_logger()


class PulsarEvents:
    """Counts brokers by the state of the connections to them."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._states: dict[str, tuple[ConnectionState, float]] = {}
        """By broker: the best state of its connections, and since when they have it."""
        for each in ConnectionState:
            metrics.pulsar_connections.labels(each.value).set_function(partial(self._count, each))

    def on_connection_state(
        self, broker_url: str, state: ConnectionState, error: PulsarError | None, *, others: bool
    ) -> None:
        log.info("pulsar connection", broker=broker_url, state=state.name, error=str(error) if error else None)
        if state is ConnectionState.CLOSED:
            if others:
                return
            if isinstance(error, ClientClosedError):  # it is not needed any more
                self._states.pop(broker_url, None)
                return
        self._states[broker_url] = state, self._clock()

    def _count(self, wanted: ConnectionState) -> int:
        oldest = self._clock() - CLOSED_SHOWN_S
        for url, (state, since) in [*self._states.items()]:
            if state is ConnectionState.CLOSED and since < oldest:
                del self._states[url]
        return sum(state is wanted for state, _ in self._states.values())


def _advertised(listener: AddressSection, port: int) -> Address:
    host, port = listener.advertised_host or listener.host, listener.advertised_port or port
    if is_unspecified(host):
        log.warning("set advertised_host: from other machines, nobody can connect", advertised_host=host, port=port)
    return Address(host=host, port=port)


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
        self._client = PulsarClient(config.pulsar, PulsarEvents(self.metrics))
        self._fleet = Fleet(self._client, self._admin, config.pulsar.full_system_namespace, config.fleet)
        self._shared = Shared(
            self._client.by_namespace(), self._admin, config.limits, self.metrics, self._fleet.may_send_idempotent,
            self._fleet,
        )  # fmt: skip
        parts = ProcessParts(self._client, self._admin, self._shared, self._peer_security(), self.metrics)
        self._services = ClusterServices(with_share(config) if config.kafka.clusters else config, self._fleet, parts)
        self._fleet.ask_about_eviction(self._services.requests_to_gateways("eviction check"))
        self._clusters = Clusters(config, self._fleet, parts, self._services.served)
        self.metrics.fleet_members.set_function(lambda: len(self._fleet.members))
        self.metrics.fleet_epoch.set_function(lambda: self._fleet.epoch)
        self.metrics.fleet_lease.set_function(lambda: self._fleet.state.permissions.coordinates)
        self.metrics.tasks.set_function(lambda: len(asyncio.all_tasks(self._loop)))
        self._tasks = TaskGroup()
        self._server: KafkaServer | None = None
        self._logins: LoginService | None = None
        self._not_ready: str | None = "starting"
        self._accepts_clients = False
        self._health = HealthServer(
            config.http, self.metrics, lambda: self._failures.reason, self._why_not_ready,
            lambda: self._clusters.failures, self._why_no_partitions,
        )

    @property
    def node_id_in_use(self) -> asyncio.Future[NodeIdInUse]:
        """Set when this gateway has to stop, because another gateway has its node id."""
        return self._fleet.node_id_in_use

    @property
    def failed(self) -> asyncio.Future[BackgroundFailure]:
        """Set when this gateway has to stop, because a part of it keeps failing."""
        return self._failures.failed

    def _peer_security(self) -> PeerSecurity | None:
        """Raises InvalidCertificate."""
        forwarding = self.config.fleet.forwarding
        is_secured = forwarding is not None and forwarding.tls is not None
        return PeerSecurity(forwarding, self.metrics) if forwarding and is_secured else None

    async def start(self) -> None:
        """Raises UnsupportedCluster, InvalidAuthorizer, InvalidCertificate, InvalidKey, NodeIdInUse, PulsarError or
        OSError."""
        self._watchdog.start()
        self._garbage.start()
        freed_memory.keep_for_buffers()
        await self._health.start()
        await self._wait_for_pulsar()
        dispatcher = Dispatcher(*self._services.served, self._clusters if self.config.kafka.clusters else None)
        if any(listener.speaks_sasl for listener in self.config.kafka.all_listeners):
            self._logins = await LoginService.start(self.config, self.metrics, self._services.security)
        self._server = KafkaServer(
            self.config, dispatcher, self.metrics, self._logins, self._services.security.address_quotas
        )
        self._clusters.end_connections = self._server.end_connections
        ports = await self._server.bind()
        run_once("codecs of Fetch", prepare_fetch())  # while Pulsar is waited for
        await self._join_fleet(ports)
        self._not_ready = "loading ACLs and quotas"
        await self._until_pulsar_is_there(self._services.load_rights)
        await self._until_pulsar_is_there(self._prepare_users)
        await self._server.start()
        self._accepts_clients = True
        self._tasks.keep_running("housekeeping", self._keep_house)
        self._clusters.start()
        self._not_ready = "loading consumer groups and transactions"
        await self._services.start()
        self._not_ready = None
        log.info("serving", ports=ports, namespace=self.config.pulsar.full_namespace)

    async def stop(self) -> None:
        """Clients get the new leaders before their connections are closed."""
        self._not_ready, self._accepts_clients = "stopping", False
        await self._fleet.hand_over()
        if self._server is not None:
            await self._server.stop()
        if self._logins is not None:
            await self._logins.close()
        await self._tasks.close()
        await asyncio.gather(self._services.stop(), self._clusters.stop())
        self._shared.close()
        await self._fleet.leave()
        await self._client.close()
        await self._admin.close()
        await self._health.stop()
        self._garbage.stop()
        self._watchdog.stop()

    def _why_not_ready(self) -> str | None:
        return self._not_ready or self._why_no_partitions() or self._services.load_failure

    def _why_no_partitions(self) -> str | None:
        """A gateway that is cut off from Pulsar still answers, so its clients would stay, but it cannot write."""
        if not self._accepts_clients:
            return self._not_ready
        return None if self._fleet.state.permissions.is_ready else "cut off: Pulsar acknowledges no writes"

    async def _wait_for_pulsar(self) -> None:
        self._not_ready = "waiting for Pulsar"
        log.info("connecting to Pulsar", admin_url=self.config.pulsar.admin_url)
        await self._until_pulsar_is_there(lambda: prepare_namespaces(self._admin, self.config.pulsar))

    async def _until_pulsar_is_there(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Retry until Pulsar can be reached: a gateway may start before Pulsar does."""

        def try_again(error: Exception) -> bool:
            if not (isinstance(error, TimeoutError) or (isinstance(error, PulsarError) and error.retriable)):
                return False
            self._not_ready = f"waiting for Pulsar: {error}"
            log.warning("waiting for Pulsar", error=str(error))
            return True

        await retried(attempt, try_again, Backoff(WAIT_FOR_PULSAR_S))

    async def _prepare_users(self) -> None:
        if self._logins is not None:
            await self._logins.prepare_users(await self._services.security.secret())

    async def _join_fleet(self, ports: Mapping[str, int]) -> None:
        self._not_ready = "joining the fleet"
        kafka, forwarding = self.config.kafka, self.config.fleet.forwarding
        addresses = {each.name: _advertised(each, ports[each.name]) for each in kafka.all_listeners}
        inside = None if forwarding is None else _advertised(forwarding, ports[FORWARDING_LISTENER])
        clusters = tuple(each.namespace for each in kafka.clusters)
        instance = f"{socket.gethostname()} {kafka.host}:{ports[DEFAULT_LISTENER]}"
        await self._until_pulsar_is_there(
            lambda: self._fleet.join(
                kafka.node_id, instance, addresses, inside, kafka.rack, TRANSACTION_VERSION, clusters
            )
        )

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            for services in (self._services, *self._clusters):
                try:
                    await services.keep_house()
                except PulsarError as error:
                    log.warning("housekeeping", error=str(error))
            self._shared.close_idle()
            self._garbage.keep_house()
            freed_memory.return_to_system()
