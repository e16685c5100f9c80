"""What can be told of the clusters that a fleet serves besides its own, and which names these may have."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated

from pydantic import Field, model_validator

from gateway.listener_config import NAME, Section

SYSTEM_SUFFIX = "-gateway"
"""Behind the name of a namespace: that of the state of its gateways."""
HOST = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$"
"""In small letters: case does not matter in host names."""
_NAMESPACE = re.compile(f"{NAME}/{NAME}")


class ClusterSection(Section):
    """A Kafka cluster beside the one of `[pulsar]`, or all those of a tenant. Give all gateways the same."""

    namespace: str = Field(pattern=rf"^{NAME}/({NAME}|\*)$")
    """`tenant/namespace` of its topics, or `tenant/*` for every namespace of a tenant. Its state is in
    `tenant/namespace-gateway`. Pulsar's addresses and the gateway's credentials are those of `[pulsar]`."""
    create_namespace: bool = False
    """Make the namespace if it is missing, as that of `[pulsar]`. Else clients are refused until it is there."""
    users: tuple[str, ...] = Field(default=(), strict=False)
    """Names of principals that may use it; `*` is everybody. One that is named belongs to the clusters that name it,
    and may use no others. Clients that need not log in may use it where a listener has it as its `cluster`, or by its
    `hosts`."""
    hosts: tuple[Annotated[str, Field(pattern=HOST)], ...] = Field(default=(), strict=False)
    """Names such as `orders.example.com`. A client that connects to one of them with TLS uses this cluster, and is told
    that all brokers are there. Needs a listener with TLS, `single_address`, and no `cluster` of its own."""

    @model_validator(mode="after")
    def _hosts_are_of_one(self) -> ClusterSection:
        if self.hosts and self.namespace.endswith("/*"):
            raise ValueError("hosts name one cluster, not all of a tenant")
        return self


class ClusterLimits(Section):
    """What one of several clusters may take of a gateway, so that the others have their part."""

    max_open: int = Field(default=100, ge=1)
    """Clusters that a gateway serves besides the fleet's own. One is opened when its first client comes."""
    max_share_percent: int = Field(default=50, ge=1, le=100)
    """Of `[limits]`: what one cluster may take of connections, fetch sessions, and memory: for requests, for what is
    read ahead, and for answers that are not read."""
    idle_ms: int = Field(default=600_000, ge=1_000)
    """A cluster that no client has used for so long is closed, unless a listener is for it."""


def cluster_hosts(clusters: Iterable[ClusterSection]) -> dict[str, str]:
    """The cluster of each host name."""
    return {host: each.namespace for each in clusters for host in each.hosts}


def section_of(clusters: Iterable[ClusterSection], own: Collection[str], name: str) -> ClusterSection | None:
    """The section of a cluster's name; None if it is not served.

    `own` are the fleet's own namespaces. No cluster is in a namespace that holds the state of gateways, nor has its own
    state in one that is served.
    """
    if not _NAMESPACE.fullmatch(name) or name.endswith(SYSTEM_SUFFIX) or {name, name + SYSTEM_SUFFIX} & {*own}:
        return None
    by_name = {each.namespace: each for each in clusters}
    return by_name.get(name) or by_name.get(f"{name.partition('/')[0]}/*")


def check_clusters(clusters: Sequence[ClusterSection], own: Collection[str], chosen: Iterable[str | None]) -> None:
    """`chosen` are those of listeners. Raises ValueError."""
    names = [each.namespace for each in clusters]
    if len({*names}) < len(names):
        raise ValueError("[[kafka.clusters]] must have different namespaces")
    hosts = [host for each in clusters for host in each.hosts]
    if len({*hosts}) < len(hosts):
        raise ValueError("[[kafka.clusters]] must have different hosts")
    for name in (*names, *chosen):
        if name is not None and not name.endswith("/*") and section_of(clusters, own, name) is None:
            raise ValueError(f"{name} cannot be one of [[kafka.clusters]], or is missing there")
