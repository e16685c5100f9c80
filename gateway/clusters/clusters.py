"""The clusters of a gateway besides the fleet's own: each is opened when its first client comes, and stays open.

| state of a cluster | entered when | who asks for it |
| --- | --- | --- |
| unknown | the gateway starts | begins to open it |
| opening | its first client comes, or what failed is old enough | waits with all others |
| failed | its namespaces cannot be used | is refused |
| open | its namespaces are fit | is served; its coordinators may be loading |
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial

import structlog

from coordinator.fleet.messages import Member
from gateway.background import TaskGroup
from gateway.cluster_config import section_of
from gateway.clusters.choice import choose, home_of
from gateway.clusters.configs import of_cluster
from gateway.clusters.services import ClusterServices, ProcessParts
from gateway.clusters.usage import UsageOfClusters
from gateway.clusters.usage_topic import UsageTopic
from gateway.config import FORWARDING_LISTENER, Config
from gateway.dispatch import ServedCluster
from gateway.fleet.cluster_view import ClusterView
from gateway.fleet.fleet import Fleet
from gateway.namespace import UnfitCluster, prepare_namespaces
from gateway.pulsar.errors import PulsarError
from gateway.requests.cluster import ClusterRefused, Usage
from gateway.requests.context import Listener, Principal
from gateway.security.pulsar_authorizer import UnfitAuthorizer

OPEN_S = 20.0
"""A client waits no longer; the opening goes on."""
TRY_AGAIN_S = 3.0
"""What has failed is not tried again before: refused clients come back at once."""

log = structlog.get_logger()


class Clusters:
    """`start` it when the gateway is a member of the fleet, and `stop` it before it leaves."""

    def __init__(self, config: Config, fleet: Fleet, parts: ProcessParts, own: ServedCluster) -> None:
        """`own` is the fleet's own cluster."""
        self._config = config
        self._fleet = fleet
        self._parts = parts
        self._own = own
        self._made: dict[str, ClusterServices] = {}
        """They stay, also if their rights could not be loaded yet."""
        self._open: dict[str, ServedCluster] = {}
        self._opening: dict[str, asyncio.Task[ServedCluster]] = {}
        self._failed: dict[str, tuple[float, str]] = {}
        """When, and why."""
        self._tasks = TaskGroup()
        self._stopping = False
        if config.kafka.clusters:
            parts.metrics.register(UsageOfClusters(self._usages))

    def _usages(self) -> dict[str, Usage]:
        served = {self._config.pulsar.full_namespace: self._own, **self._open}
        return {name: each.cluster.usage for name, each in served.items()}

    @property
    def failures(self) -> dict[str, str]:
        """Why clusters are not served, as far as the last attempt tells."""
        loading = {name: services.load_failure for name, services in self._made.items()}
        return {name: why for name, (_, why) in self._failed.items()} | {
            name: why for name, why in loading.items() if why is not None
        }

    def __iter__(self) -> Iterator[ClusterServices]:
        """Those that are open, or on their way."""
        return iter([*self._made.values()])

    # Entering

    async def enter(
        self, listener: Listener, principal: Principal, asked: str | None, *, is_own_user: bool = False
    ) -> ServedCluster:
        """The cluster of a connection: `asked` is what its client named, or whose own user it is.

        What another gateway names it has judged itself. Raises ClusterRefused.
        """
        if listener.name == FORWARDING_LISTENER:
            name = asked
        else:
            name = choose(self._config, listener.cluster, principal, asked, is_own_user=is_own_user)
        return self._own if name is None else await self.open(name)

    async def home(self, listener: Listener, user: str) -> ServedCluster | None:
        """Where one who logs in may be a user of the cluster's own. Raises ClusterRefused."""
        name = home_of(self._config, listener.cluster, user)
        return None if name is None else await self.open(name)

    async def open(self, name: str) -> ServedCluster:
        """Once for all who ask. Raises ClusterRefused."""
        found = self._open.get(name)
        if found is not None:
            return found
        try:
            async with asyncio.timeout(OPEN_S):
                return await asyncio.shield(self._opening.get(name) or self._begin(name))
        except (UnfitCluster, UnfitAuthorizer, PulsarError, TimeoutError) as error:
            raise ClusterRefused("the cluster cannot be opened") from error

    def _begin(self, name: str) -> asyncio.Task[ServedCluster]:
        section = section_of(self._config.kafka.clusters, self._config.pulsar.both_namespaces, name)
        if section is None:
            raise ClusterRefused("a cluster that is not served")
        if self._stopping:
            raise ClusterRefused("the gateway stops")
        self._failed = {each: (at, why) for each, (at, why) in self._failed.items() if at > _now() - TRY_AGAIN_S}
        if name in self._failed:
            raise ClusterRefused("the cluster cannot be opened")
        max_open = self._config.kafka.cluster_limits.max_open
        if name not in self._made and len(self._made.keys() | self._opening.keys()) >= max_open:
            raise ClusterRefused("too many clusters")
        opening = self._opening[name] = asyncio.create_task(self._bring_up(name, create=section.create_namespace))
        opening.add_done_callback(partial(self._brought_up, name))
        return opening

    async def _bring_up(self, name: str, *, create: bool) -> ServedCluster:
        config = of_cluster(self._config, name)
        await prepare_namespaces(self._parts.admin, config.pulsar, create=create)
        services = self._made.get(name)
        if services is None:
            services = ClusterServices(config, ClusterView(self._fleet, name), self._parts, name)
            self._made[name] = services
            self._tasks.run_once("start of a cluster", services.start())
        await services.load_rights()
        self._open[name] = services.served
        log.info("cluster opened", cluster=name)
        return services.served

    def _brought_up(self, name: str, opening: asyncio.Task[ServedCluster]) -> None:
        del self._opening[name]
        if not opening.cancelled() and (error := opening.exception()) is not None:
            self._failed[name] = (_now(), str(error))
            log.warning("cannot open cluster", cluster=name, error=str(error))

    # Coming and going

    def start(self) -> None:
        """Open what listeners are for, so that its coordinators are here without a client."""
        self._tasks.keep_running("clusters of listeners", self._open_those_of_listeners)
        self._tasks.keep_running("clusters elsewhere", self._keep_open_elsewhere)
        if self._config.kafka.clusters:
            self._tasks.keep_running("usage of clusters", self._new_usage_topic().keep_telling)

    def _new_usage_topic(self) -> UsageTopic:
        parts, namespace = self._parts, self._config.pulsar.full_system_namespace
        return UsageTopic(parts.client, parts.admin, namespace, lambda: self._fleet.node_id, self._usages)

    async def _open_those_of_listeners(self) -> None:
        wanted = {each.cluster for each in self._config.kafka.all_listeners if each.cluster is not None}
        while wanted - self._open.keys():
            for name in wanted - self._open.keys():
                try:
                    await self.open(name)
                except ClusterRefused:
                    continue  # it is logged
            await asyncio.sleep(TRY_AGAIN_S)

    async def _keep_open_elsewhere(self) -> None:
        """What is open here is to be open at all gateways: clients may be gone that have left something to be ended."""
        opened: set[tuple[str, Member]] = set()
        while True:
            wanted = {(name, member) for name in self._open for member in self._others if member.serves(name)}
            left = [*(wanted - opened)]
            answered = await asyncio.gather(*(self._made[name].open_elsewhere(member) for name, member in left))
            opened = wanted - {each for each, has_answered in zip(left, answered, strict=True) if not has_answered}
            await asyncio.sleep(TRY_AGAIN_S)

    @property
    def _others(self) -> list[Member]:
        return [member for member in self._fleet.members if member.node_id != self._fleet.node_id]

    async def stop(self) -> None:
        """Nothing is led any more on return. No client is left."""
        self._stopping = True
        for opening in self._opening.values():
            opening.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        await self._tasks.close()
        await asyncio.gather(*(services.stop() for services in self))


def _now() -> float:
    return time.monotonic()
