"""The addresses of a topology's nodes: each node has a host and named ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from deploy.topology.description import Kind, Node, Topology

Purpose = Literal["client", "peer", "election", "http", "metrics"]

PORTS: Mapping[Kind, Mapping[Purpose, int]] = {
    Kind.ZOOKEEPER: {"client": 2181, "peer": 2888, "election": 3888},
    Kind.BOOKIE: {"client": 3181, "metrics": 8000},
    Kind.BROKER: {"client": 6650, "http": 8080},
    Kind.GATEWAY: {"client": 9092, "http": 9464},
    Kind.HAPROXY: {"client": 9092},
}
"""The ports of each kind with their usual numbers. haproxy has one more for each of its gateways, after its own."""


@dataclass(frozen=True, slots=True)
class Place:
    host: str
    ports: Mapping[Purpose, int]

    def at(self, purpose: Purpose = "client") -> str:
        return f"{self.host}:{self.ports[purpose]}"


class Places:
    """The addresses of all nodes, and the lists of addresses that settings contain."""

    def __init__(self, topology: Topology, by_name: Mapping[str, Place]) -> None:
        self.topology = topology
        self._by_name = by_name

    def of(self, node: Node) -> Place:
        return self._by_name[node.name]

    def all_at(self, kind: Kind, cluster: str, purpose: Purpose = "client", *, first: str | None = None) -> str:
        """Addresses of all nodes of a kind, comma-separated; those in the region `first` come first."""
        nodes = self.topology.of(kind, cluster=cluster)
        return ",".join(self.of(node).at(purpose) for node in sorted(nodes, key=lambda node: node.region != first))

    def service_url(self, cluster: str, *, first: str | None = None) -> str:
        return f"pulsar://{self.all_at(Kind.BROKER, cluster, first=first)}"

    def admin_url(self, cluster: str, *, first: str | None = None) -> str:
        return f"http://{self.all_at(Kind.BROKER, cluster, 'http', first=first)}"

    def bootstrap(self, *, first: str | None = None) -> str:
        """The bootstrap addresses for Kafka clients: haproxy of every region."""
        nodes = sorted(self.topology.of(Kind.HAPROXY), key=lambda node: node.region != first)
        return ",".join(self.of(node).at() for node in nodes)


def by_host_name(topology: Topology) -> Places:
    """Each node has a host with the name of the node, and the usual ports."""
    return Places(topology, {node.name: Place(node.name, PORTS[node.kind]) for node in topology.nodes})
