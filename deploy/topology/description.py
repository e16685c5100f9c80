"""The description of a deployment: clusters of Pulsar, the regions that they span, and the nodes of each region.

The TOML files beside this module have one deployment each. Compose files and local processes are generated from them.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

FOLDER = Path(__file__).parent


class TopologyError(ValueError):
    """The topology does not exist, or its description contradicts itself."""


class Kind(StrEnum):
    ZOOKEEPER = "zk"
    BOOKIE = "bk"
    BROKER = "pulsar"
    GATEWAY = "gateway"
    HAPROXY = "haproxy"


@dataclass(frozen=True, slots=True)
class Node:
    """One process, or one container."""

    kind: Kind
    number: int
    """Counted from 1, among the nodes of the same kind in the same region."""
    region: str
    cluster: str

    @property
    def name(self) -> str:
        return f"{self.kind}{self.number}-{self.region}"


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Share(Section):
    """How many nodes of each kind a cluster has in one region."""

    zookeepers: int = Field(default=0, ge=0)
    bookies: int = Field(default=0, ge=0)
    brokers: int = Field(default=0, ge=0)
    gateways: int = Field(default=0, ge=0)

    def count(self, kind: Kind) -> int:
        if kind is Kind.HAPROXY:  # one haproxy is in front of the gateways of a region
            return min(self.gateways, 1)
        counts = (self.zookeepers, self.bookies, self.brokers, self.gateways)
        return dict(zip(Kind, counts, strict=False))[kind]


class Quorum(Section):
    """BookKeeper's: bookies of a ledger, copies of an entry, and copies that must be written before it is acknowledged.
    """

    ensemble: int = Field(ge=1)
    write: int = Field(ge=1)
    ack: int = Field(ge=1)


class Namespace(Section):
    clusters: tuple[str, ...] = Field(min_length=1)
    """The clusters that have the namespace. If there are several, they replicate it to each other."""
    primary: str | None = None
    """The region whose brokers serve it while one of them lives; any broker of the cluster otherwise."""


class Topology(Section):
    name: str
    about: str
    served: str
    """The namespace that the gateways serve, as tenant/namespace."""
    quorum: Quorum
    clusters: Mapping[str, Mapping[str, Share]]
    """For each cluster and each region, the number of nodes."""
    namespaces: Mapping[str, Namespace]

    @cached_property
    def regions(self) -> list[str]:
        return list(dict.fromkeys(region for shares in self.clusters.values() for region in shares))

    @cached_property
    def nodes(self) -> list[Node]:
        """All nodes, in the order of starting."""
        counted: Counter[tuple[Kind, str]] = Counter()
        return [self._numbered(counted, *wanted) for wanted in self._wanted()]

    def _wanted(self) -> Iterator[tuple[Kind, str, str]]:
        for kind in Kind:
            for cluster, shares in self.clusters.items():
                for region, share in shares.items():
                    for _ in range(share.count(kind)):
                        yield kind, region, cluster

    @staticmethod
    def _numbered(counted: Counter[tuple[Kind, str]], kind: Kind, region: str, cluster: str) -> Node:
        counted[kind, region] += 1
        return Node(kind, counted[kind, region], region, cluster)

    def of(self, kind: Kind, *, cluster: str | None = None, region: str | None = None) -> list[Node]:
        return [
            node for node in self.nodes
            if node.kind is kind and cluster in (None, node.cluster) and region in (None, node.region)
        ]  # fmt: skip

    def region_aware(self, cluster: str) -> bool:
        """Each entry must have copies in two regions, because both regions have bookies."""
        return len({node.region for node in self.of(Kind.BOOKIE, cluster=cluster)}) > 1

    def rack(self, bookie: Node) -> str:
        """A rack as BookKeeper's placement policy reads it: the region-aware policy needs /region/rack, the other
        /rack."""
        region = f"/{bookie.region}" if self.region_aware(bookie.cluster) else ""
        return f"{region}/rack{bookie.number}"

    @property
    def system_namespace(self) -> str:
        """The namespace of the gateways' own topics: the default of their configuration."""
        return f"{self.served}-gateway"

    @property
    def all_namespaces(self) -> Mapping[str, Namespace]:
        """All namespaces. That of the gateways' own topics has the same clusters as the served one."""
        return {**self.namespaces, self.system_namespace: self.namespaces[self.served]}

    @property
    def replicated(self) -> bool:
        """The served namespace is in more than one cluster."""
        return len(self.namespaces[self.served].clusters) > 1

    @model_validator(mode="after")
    def _agree(self) -> Topology:
        if self.served not in self.namespaces:
            raise ValueError(f"{self.served} is served and not among the namespaces")
        for name, namespace in self.namespaces.items():
            if unknown := set(namespace.clusters) - self.clusters.keys():
                raise ValueError(f"namespace {name} is in clusters that are not described: {', '.join(unknown)}")
            if namespace.primary is not None and namespace.primary not in self.regions:
                raise ValueError(f"namespace {name} prefers a region that is not described: {namespace.primary}")
        for cluster in self.clusters:
            if len(self.of(Kind.BOOKIE, cluster=cluster)) < self.quorum.ensemble:
                raise ValueError(f"cluster {cluster} has fewer bookies than an ensemble")
        for region in self.regions:
            if len(self.of(Kind.HAPROXY, region=region)) > 1:
                raise ValueError(f"the gateways of one region are those of one cluster, in {region} too")
        return self


def names() -> list[str]:
    return sorted(file.stem for file in FOLDER.glob("*.toml"))


def load(name: str) -> Topology:
    """Load the topology of this name, one of `names`. Raises TopologyError."""
    if name not in names():
        raise TopologyError(f"there is no topology {name}; there are {', '.join(names())}")
    text = (FOLDER / f"{name}.toml").read_text()
    try:
        return Topology(name=name, **tomllib.loads(text))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise TopologyError(f"{name}.toml: {error}") from error
