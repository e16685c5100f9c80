"""The clusters of a gateway besides the fleet's own: each is opened when its first client arrives.

A cluster is closed after an idle time without clients of this gateway, without open transactions here, and without
requests of other gateways, which send reminders while they use the cluster. Clusters of listeners stay open.

| state of a cluster | entered when | a request for the cluster |
| --- | --- | --- |
| unknown | the gateway starts; the cluster was closed | begins to open it |
| opening | its first client arrives, or the last failure is old enough | waits with all others |
| failed | its namespaces cannot be used | is refused |
| open | its namespaces can be used | is served; its coordinators may still be loading |
| closing | nobody has used it for the idle time, or Pulsar has lost it | waits for that, then opens it again |
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial

import structlog

from coordinator.fleet.messages import Member
from gateway.background import TaskGroup, run_once
from gateway.clusters.choice import choose, home_of
from gateway.clusters.configs import of_cluster
from gateway.clusters.services import ClusterServices, ProcessParts
from gateway.clusters.usage import UsageOfClusters
from gateway.clusters.usage_topic import UsageTopic
from gateway.config.clusters import section_of
from gateway.config.gateway_config import FORWARDING_LISTENER, Config
from gateway.dispatch import ServedCluster
from gateway.fleet.cluster_view import ClusterView
from gateway.fleet.fleet import Fleet
from gateway.namespace import UnsupportedCluster, prepare_namespaces
from gateway.observability.logs import LINES_PER_S, SparseLog
from gateway.pulsar.errors import PulsarError, RequestTimeoutError
from gateway.requests.cluster import Cluster, ClusterRefused, Usage
from gateway.requests.context import Listener, Principal
from gateway.security.pulsar_authorizer import InvalidAuthorizer

OPEN_S = 20.0
"""A client waits no longer than this; the opening continues."""
LOAD_S = 20.0
"""When the rights of a cluster are not loaded by then, opening it has failed: its namespaces may have been deleted
meanwhile, and the next attempt looks at them again. The rights are loaded on."""
CHECK_S = 5.0
"""How often the use of clusters is checked."""
REMINDERS = 3
"""The number of reminders to each gateway within the idle time, for a cluster that is used here."""
TRY_AGAIN_S = 3.0
"""After a failure, there is no other attempt for this time: refused clients reconnect at once."""
MIN_OPEN_S = 5.0
"""A cluster is not evicted for this time: a client may be about to log in to it."""
MAX_EVICTED = 4
"""No cluster is evicted while so many are being closed."""
MAX_FAILED = 1_000
"""Failures that are remembered for this time: clients may name clusters that cannot be opened, one after the other."""
MAX_CLOSED = 10_000
"""Closed clusters whose usage is remembered. With `create_namespace`, clients may open new ones without end."""

log = structlog.get_logger()
sparse_log = SparseLog(log, lines=LINES_PER_S)
"""Of what clients can cause by their choice of a cluster."""


class Clusters:
    """Call `start` when the gateway is a member of the fleet, and `stop` before it leaves."""

    def __init__(self, config: Config, fleet: Fleet, parts: ProcessParts, own: ServedCluster) -> None:
        """`own` is the fleet's own cluster."""
        self._config = config
        self._fleet = fleet
        self._parts = parts
        self._own = own
        self._made: dict[str, ClusterServices] = {}
        """Services are kept, also if their rights could not be loaded yet."""
        self._open: dict[str, ServedCluster] = {}
        self._opening: dict[str, asyncio.Task[ServedCluster]] = {}
        self._failed: dict[str, tuple[float, str]] = {}
        """When and why opening failed, at most `MAX_FAILED`."""
        self._closing: dict[str, asyncio.Task[None]] = {}
        self._views: dict[str, ClusterView] = {}
        self._asked_s: dict[str, float] = {}
        """When each of `_made` was last requested, by a client or another gateway, or used."""
        self._used_s: dict[str, float] = {}
        """When clients of this gateway, or their transactions, last used each of `_made`."""
        self._opened_s: dict[str, float] = {}
        """When each of `_open` was opened, in this order."""
        self._entered: set[str] = set()
        """Those of `_made` that clients have logged in to. Others were opened to check a password."""
        self._usage_before: dict[str, Usage] = {}
        """The usage of closed clusters, at most `MAX_CLOSED`: their counters continue when they are opened again."""
        self._idle_s = config.kafka.cluster_limits.idle_ms / 1_000
        self._of_listeners = {each.cluster for each in config.kafka.all_listeners if each.cluster is not None}
        self.end_connections: Callable[[Cluster], None] = lambda cluster: None
        """Closes the connections of a cluster, which only other gateways still have. The server sets this function."""
        self._tasks = TaskGroup()
        self._stopping = False
        if config.kafka.clusters:
            parts.metrics.register(UsageOfClusters(self._usages))

    def _usages(self) -> dict[str, Usage]:
        served = {self._config.pulsar.full_namespace: self._own, **self._open}
        return {name: each.cluster.usage for name, each in served.items()}

    @property
    def failures(self) -> dict[str, str]:
        """Why clusters are not served, by name, from the last attempt."""
        loading = {name: services.load_failure for name, services in self._made.items()}
        return {name: why for name, (_, why) in self._failed.items()} | {
            name: why for name, why in loading.items() if why is not None
        }

    def __iter__(self) -> Iterator[ClusterServices]:
        """The services of clusters that are open or being opened."""
        return iter([*self._made.values()])

    # Entering

    async def enter(
        self, listener: Listener, principal: Principal, asked: str | None, *, is_own_user: bool = False
    ) -> ServedCluster:
        """Return the cluster of a connection: `asked` is the one that its client named, or whose own user it is.

        Another gateway has already checked the cluster that it names. Raises ClusterRefused.
        """
        if listener.name == FORWARDING_LISTENER:
            name = asked
        else:
            name = choose(self._config, listener.cluster, principal, asked, is_own_user=is_own_user)
        if name is None:
            return self._own
        served = await self.open(name)
        self._entered.add(name)
        if listener.name != FORWARDING_LISTENER:
            self._note(self._used_s, name)
        return served

    def _note(self, times_s: dict[str, float], name: str) -> None:
        """Clusters that were not made are not noted: clients may name any number of them."""
        if name in self._made:
            times_s[name] = _now()

    async def home(self, listener: Listener, user: str) -> ServedCluster | None:
        """The cluster whose own users may have this name. Raises ClusterRefused."""
        name = home_of(self._config, listener.cluster, user)
        return None if name is None else await self.open(name)

    async def open(self, name: str) -> ServedCluster:
        """Open a cluster, once for all callers. Raises ClusterRefused."""
        self._note(self._asked_s, name)
        found = self._open.get(name)
        if found is not None:
            return found
        try:
            async with asyncio.timeout(OPEN_S):
                return await asyncio.shield(self._opening.get(name) or self._begin(name))
        except (UnsupportedCluster, InvalidAuthorizer, PulsarError, TimeoutError) as error:
            raise ClusterRefused("the cluster cannot be opened") from error

    def _begin(self, name: str) -> asyncio.Task[ServedCluster]:
        section = section_of(self._config.kafka.clusters, self._config.pulsar.both_namespaces, name)
        if section is None:
            raise ClusterRefused("cluster is not served")
        if self._stopping:
            raise ClusterRefused("the gateway stops")
        self._failed = {each: (at, why) for each, (at, why) in self._failed.items() if at > _now() - TRY_AGAIN_S}
        if name in self._failed:
            raise ClusterRefused("the cluster cannot be opened")
        max_open = self._config.kafka.cluster_limits.max_open
        count = len(self._made.keys() | self._opening.keys() | self._closing.keys() | {name})
        if name not in self._made and count > max_open and not self._evict_one():
            raise ClusterRefused("too many clusters")
        opening = self._opening[name] = asyncio.create_task(self._bring_up(name, create=section.create_namespace))
        opening.add_done_callback(partial(self._brought_up, name))
        return opening

    def _evict_one(self) -> bool:
        """Close a cluster that no client has logged in to. Clients without a password may have it opened again, so few
        are evicted at the same time."""
        if len(self._closing) >= MAX_EVICTED:
            return False
        old_s = _now() - MIN_OPEN_S
        for name, opened_s in self._opened_s.items():
            if opened_s <= old_s and name not in self._entered and not self._is_used(name):
                self._start_closing(name)
                return True
        return False

    async def _bring_up(self, name: str, *, create: bool) -> ServedCluster:
        if name in self._closing:
            await asyncio.wait({self._closing[name]})
        config = of_cluster(self._config, name)
        await prepare_namespaces(self._parts.admin, config.pulsar, create=create)
        services = self._made.get(name)
        if services is None:
            self._views[name] = ClusterView(self._fleet, name)
            services = self._made[name] = ClusterServices(config, self._views[name], self._parts, name)
            services.served.cluster.usage.count_on(self._usage_before.pop(name, None))
            services.begin_to_start()
        await self._load_rights(services)
        self._open[name] = services.served
        self._opened_s[name] = _now()
        log.info("cluster opened", cluster=name)
        return services.served

    async def _load_rights(self, services: ClusterServices) -> None:
        try:
            async with asyncio.timeout(LOAD_S):
                await services.load_rights()
        except TimeoutError:
            raise RequestTimeoutError("its rights are not loaded yet") from None

    def _brought_up(self, name: str, opening: asyncio.Task[ServedCluster]) -> None:
        del self._opening[name]
        self._note(self._asked_s, name)  # those who asked for it have waited until now
        if not opening.cancelled() and (error := opening.exception()) is not None:
            self._failed[name] = (_now(), str(error))
            if len(self._failed) > MAX_FAILED:
                del self._failed[next(iter(self._failed))]
            sparse_log.warning("cannot open cluster", cluster=name, error=str(error))

    # Opening without clients

    def start(self) -> None:
        """Open the clusters of listeners, so that their coordinators are here without a client."""
        self._tasks.keep_running("clusters of listeners", self._open_those_of_listeners)
        self._tasks.keep_running("clusters elsewhere", self._keep_open_elsewhere)
        self._tasks.keep_running("idle clusters", self._close_idle)
        if self._config.kafka.clusters:
            self._tasks.keep_running("usage of clusters", self._new_usage_topic().keep_publishing)

    def _new_usage_topic(self) -> UsageTopic:
        parts, namespace = self._parts, self._config.pulsar.full_system_namespace
        return UsageTopic(parts.client, parts.admin, namespace, lambda: self._fleet.node_id, self._usages)

    async def _open_those_of_listeners(self) -> None:
        while self._of_listeners - self._open.keys():
            for name in self._of_listeners - self._open.keys():
                try:
                    await self.open(name)
                except ClusterRefused:
                    continue  # the failure is logged
            await asyncio.sleep(TRY_AGAIN_S)

    async def _keep_open_elsewhere(self) -> None:
        """Keeps clusters that are used here open at all gateways, because a client may leave an open transaction."""
        reminded_s: dict[tuple[str, Member], float] = {}
        while True:
            old_s = _now() - self._idle_s / REMINDERS
            reminded_s = {each: at_s for each, at_s in reminded_s.items() if at_s > old_s}
            used = [name for name in self._open if self._is_used(name) or self._used_s.get(name, old_s) > old_s]
            wanted = {(name, member) for name in used for member in self._others if member.serves(name)}
            left = [*(wanted - reminded_s.keys())]
            answered = await asyncio.gather(*(self._made[name].open_elsewhere(member) for name, member in left))
            reminded_s |= {each: _now() for each, has_answered in zip(left, answered, strict=True) if has_answered}
            await asyncio.sleep(TRY_AGAIN_S)

    @property
    def _others(self) -> list[Member]:
        return [member for member in self._fleet.members if member.node_id != self._fleet.node_id]

    # Closing

    def _is_used(self, name: str) -> bool:
        services = self._made[name]
        return name in self._of_listeners or services.served.cluster.usage.connections > 0 or services.is_busy

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            for name in [*self._made]:
                if name in self._open and self._made[name].is_deleted:
                    self._start_closing(name, "deleted")
                elif self._is_used(name):
                    self._asked_s[name] = self._used_s[name] = _now()
                elif name not in self._opening and _now() - self._asked_s.get(name, 0) > self._idle_s:
                    self._start_closing(name)

    def _start_closing(self, name: str, why: str = "unused") -> None:
        """A later request opens the cluster again, after it is closed.

        This makes anew what a deleted cluster lacks, and nobody keeps rights that were deleted with it.
        """
        services, view = self._made.pop(name), self._views.pop(name)
        for known in (self._open, self._asked_s, self._used_s, self._opened_s):
            known.pop(name, None)
        self._entered.discard(name)
        usage = self._usage_before[name] = services.served.cluster.usage
        if len(self._usage_before) > MAX_CLOSED:
            del self._usage_before[next(iter(self._usage_before))]
        usage.has_ended = True  # a connection may have got the cluster, and wait for its turn to enter it
        self.end_connections(services.served.cluster)
        closing = self._closing[name] = run_once("closing of a cluster", self._close(name, services, view))
        closing.add_done_callback(lambda task: self._closing.pop(name, None))
        log.info(f"cluster closed: {why}", cluster=name, bytes_in=usage.bytes_in, bytes_out=usage.bytes_out)

    async def _close(self, name: str, services: ClusterServices, view: ClusterView) -> None:
        try:
            await services.stop()
        finally:
            view.close()
            self._parts.shared.close_namespace(name)
            self._parts.metrics.forget_cluster(name)

    async def stop(self) -> None:
        """Call this when no client is left. On return, this gateway leads nothing any more."""
        self._stopping = True
        for opening in self._opening.values():
            opening.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        await self._tasks.close()
        await asyncio.gather(*self._closing.values(), return_exceptions=True)  # `run_once` has reported them
        await asyncio.gather(*(services.stop() for services in self))


def _now() -> float:
    return time.monotonic()
