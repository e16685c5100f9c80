"""Where a request comes from and what it may use: its client, listener and principal, and the cluster that it asks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, ip_address
from itertools import count

from gateway.log.writing.refused_batches import RefusedBatches
from gateway.requests.cluster import Cluster
from gateway.requests.policy import ALL_ALLOWED, Charges, Policy
from gateway.security.acls import Requester
from protocol.kafka.messages.records import ListOffsetsResponse


@dataclass(slots=True)
class Client:
    """The other end of a connection."""

    address: str
    software_name: str = ""
    software_version: str = ""
    refused: RefusedBatches = field(default_factory=RefusedBatches)
    listing: asyncio.Future[ListOffsetsResponse] | None = None
    """The answer to its last ListOffsets that Pulsar had to be asked for."""
    arrived_s: float = math.inf
    """When the last of what it sent was read (monotonic): the request that is run came then, or before."""
    close: Callable[[str], None] = lambda reason: None
    """Ends the connection, for a reason that is logged and counted."""
    mute: Callable[[int], None] = lambda throttle_time_ms: None
    """No request of it is run for so long."""
    number: int = field(default_factory=count().__next__)
    """No other connection of this gateway has the same."""

    @property
    def host(self) -> str:
        """As Kafka writes it: a slash and the address without its port."""
        return "/" + self.address.rpartition(":")[0]

    @property
    def ip(self) -> str:
        """As ACLs name it: IPv6 in eight groups, as Java writes it."""
        text = self.address.rpartition(":")[0]
        try:
            found = ip_address(text.partition("%")[0])
        except ValueError:
            return text
        if isinstance(found, IPv4Address):
            return str(found)
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return ":".join(f"{int(group, 16):x}" for group in found.exploded.split(":"))


@dataclass(frozen=True, slots=True)
class Listener:
    """The one that took the connection."""

    name: str
    single_address: bool = False
    """Its clients know one address for all gateways."""
    cluster: str | None = None
    """That its clients use, if it is not the fleet's own or one that they choose."""
    protocol: str = "PLAINTEXT"
    """Kafka's name for what its clients speak."""
    cluster_hosts: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The cluster of each host name that clients may request with TLS (SNI)."""
    host: str | None = None
    """The host name that the client used: the advertised host of all gateways."""

    def as_asked_for(self, server_name: str | None) -> Listener:
        """The listener for a client that requested this host name. Case, and a dot at the end, do not matter."""
        host = (server_name or "").lower().removesuffix(".")
        cluster = self.cluster_hosts.get(host)
        return self if cluster is None else replace(self, cluster=cluster, host=host)


@dataclass(frozen=True, slots=True)
class Principal:
    """As Kafka names it."""

    type: str = "User"
    name: str = "ANONYMOUS"

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal()
"""Who has not logged in, or need not."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The same for all requests of a connection, but those before its login."""

    client: Client
    listener: Listener
    cluster: Cluster
    principal: Principal = ANONYMOUS
    policy: Policy = ALL_ALLOWED
    meter: Charges | None = None
    """None without quotas, and for what was charged elsewhere."""

    @property
    def requester(self) -> Requester:
        """The client as ACLs and the audit name it."""
        return Requester(str(self.principal), self.client.ip)
