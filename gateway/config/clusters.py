"""The configuration of the clusters that a fleet serves besides its own, and checks of their names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated

from pydantic import Field, model_validator

from gateway.config.listeners import NAME, Section

SYSTEM_SUFFIX = "-gateway"
"""The suffix of the namespace with the state of a namespace's gateways."""
MAX_NAME_CHARACTERS = 512
"""The limit of `tenant/namespace`. Pulsar has none, but clients may name any cluster, and what they name is kept."""
HOST = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$"
"""In lower case, because host names are case-insensitive."""
_NAMESPACE = re.compile(f"{NAME}/{NAME}")


class ClusterSection(Section):
    """A Kafka cluster besides the one of `[pulsar]`, or all clusters of a tenant. Use the same in all gateways."""

    namespace: str = Field(pattern=rf"^{NAME}/({NAME}|\*)$")
    """`tenant/namespace` of its topics, or `tenant/*` for all namespaces of a tenant. Its state is in
    `tenant/namespace-gateway`. Pulsar's addresses and the gateway's credentials are those of `[pulsar]`."""
    create_namespace: bool = False
    """Create the namespace if it does not exist, like that of `[pulsar]`. Otherwise clients are refused until it
    exists."""
    users: tuple[str, ...] = Field(default=(), strict=False)
    """Names of principals that may use the cluster; `*` means everybody. A principal that is named may only use the
    clusters that name it. Clients without a login may use the cluster through its `hosts`, or through a listener
    with this `cluster`."""
    hosts: tuple[Annotated[str, Field(pattern=HOST)], ...] = Field(default=(), strict=False)
    """Host names such as `orders.example.com`. A client that connects to one of them with TLS uses this cluster, and
    gets this host name as the address of all brokers. Requires a listener with TLS and `single_address`, and without
    `cluster`."""

    @model_validator(mode="after")
    def _hosts_are_of_one(self) -> ClusterSection:
        if self.hosts and self.namespace.endswith("/*"):
            raise ValueError("hosts belong to one cluster, but namespace is all clusters of a tenant")
        return self


class ClusterLimits(Section):
    """The share of a gateway's resources that one of several clusters may use."""

    max_open: int = Field(default=100, ge=1)
    """The maximum number of open clusters besides the fleet's own. A cluster is opened for its first client."""
    max_share_percent: int = Field(default=50, ge=1, le=100)
    """The share of `[limits]` that one cluster may use: connections, fetch sessions, and memory for requests,
    fetched records on their way, unread responses, and ACLs, SCRAM users and quotas."""
    idle_ms: int = Field(default=600_000, ge=1_000)
    """A cluster that no client uses for this time is closed, unless a listener has it as its `cluster`."""


def cluster_hosts(clusters: Iterable[ClusterSection]) -> dict[str, str]:
    """The cluster of each host name."""
    return {host: each.namespace for each in clusters for host in each.hosts}


def section_of(clusters: Iterable[ClusterSection], own: Collection[str], name: str) -> ClusterSection | None:
    """The section for a cluster's name; None if the cluster is not served.

    `own` are the fleet's own namespaces. A namespace with the state of gateways cannot be a cluster, and the state of a
    cluster cannot be in a namespace that is served.
    """
    if len(name) > MAX_NAME_CHARACTERS:
        return None
    if not _NAMESPACE.fullmatch(name) or name.endswith(SYSTEM_SUFFIX) or {name, name + SYSTEM_SUFFIX} & {*own}:
        return None
    by_name = {each.namespace: each for each in clusters}
    return by_name.get(name) or by_name.get(f"{name.partition('/')[0]}/*")


def check_clusters(clusters: Sequence[ClusterSection], own: Collection[str], chosen: Iterable[str | None]) -> None:
    """`chosen` are the clusters of listeners. Raises ValueError."""
    names = [each.namespace for each in clusters]
    if len({*names}) < len(names):
        raise ValueError("[[kafka.clusters]] must have different namespaces")
    hosts = [host for each in clusters for host in each.hosts]
    if len({*hosts}) < len(hosts):
        raise ValueError("[[kafka.clusters]] must have different hosts")
    for name in (*names, *chosen):
        if name is not None and not name.endswith("/*") and section_of(clusters, own, name) is None:
            raise ValueError(f"{name} cannot be one of [[kafka.clusters]], or is missing there")
