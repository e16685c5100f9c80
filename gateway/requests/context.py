"""The origin of a request, and what it may use: its client, listener, principal and cluster."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, ip_address
from itertools import count

from gateway.config.security import ANONYMOUS_NAME
from gateway.log.writing.refused_batches import RefusedBatches
from gateway.requests.cluster import Cluster
from gateway.requests.policy import ALL_ALLOWED, Charges, Policy
from gateway.security.acls import Requester
from protocol.kafka.messages.records import ListOffsetsResponse

MAX_NAME_BYTES = 2_048
"""The limit for the name of a principal, in UTF-8. It has to fit into the PROXY header between gateways, so a client
with a longer name cannot log in."""


@dataclass(slots=True)
class Client:
    """The other end of a connection."""

    address: str
    software_name: str = ""
    software_version: str = ""
    refused: RefusedBatches = field(default_factory=RefusedBatches)
    listing: asyncio.Future[ListOffsetsResponse] | None = None
    """The answer to the client's last ListOffsets that needed Pulsar."""
    arrived_s: float = math.inf
    """When the client's last bytes were read (monotonic): the request that runs now arrived then, or before."""
    close: Callable[[str], None] = lambda reason: None
    """Closes the connection, for a reason that is logged and counted."""
    mute: Callable[[int], None] = lambda throttle_time_ms: None
    """Runs no request of the client for this time."""
    number: int = field(default_factory=count().__next__)
    """Unique among all connections of this gateway."""
    incarnation: str = ""
    """The incarnation of this gateway when the client connected."""
    has_ended: bool = False
    """It sends nothing more, and may have gone: its fetches do not wait for records."""
    waits: dict[Callable[[], None], None] | None = None
    """What ends the waits of its fetches. There is no dict before the first of them."""

    def ends(self) -> None:
        """The client sends nothing more. A fetch that waits gets what there is."""
        self.has_ended = True
        for end_wait in tuple(self.waits or ()):
            end_wait()

    def begins_wait(self, end_wait: Callable[[], None]) -> None:
        if self.waits is None:
            self.waits = {}
        self.waits[end_wait] = None

    def ended_wait(self, end_wait: Callable[[], None]) -> None:
        if self.waits is not None:
            self.waits.pop(end_wait, None)

    @property
    def host(self) -> str:
        """The address as Kafka writes it: after a slash, and without its port."""
        return "/" + self.address.rpartition(":")[0]

    @property
    def ip(self) -> str:
        """The address as ACLs contain it: IPv6 in eight groups, as Java writes it."""
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
    """The listener that accepted the connection."""

    name: str
    single_address: bool = False
    """Its clients know one address for all gateways."""
    cluster: str | None = None
    """The cluster that its clients use; None for the fleet's own cluster, or if clients choose their cluster."""
    protocol: str = "PLAINTEXT"
    """Kafka's name for the security protocol of its clients."""
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
    """A principal as Kafka names it."""

    type: str = "User"
    name: str = ANONYMOUS_NAME
    has_logged_in: bool = True
    """Also by a certificate. The name does not tell it."""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @property
    def name_bytes(self) -> int:
        return len(self.name.encode())

    @staticmethod
    def named(text: str) -> Principal:
        """The reverse of `str`."""
        kind, _, name = text.partition(":")
        return ANONYMOUS if text == str(ANONYMOUS) else Principal(kind, name)


ANONYMOUS = Principal(has_logged_in=False)
"""A client that has not logged in, or does not need to."""
GATEWAY = Principal("Gateway", "")
"""Another gateway, or a client of it that it does not name."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The same for all requests of a connection, except those before its login."""

    client: Client
    listener: Listener
    cluster: Cluster
    principal: Principal = ANONYMOUS
    policy: Policy = ALL_ALLOWED
    """Which requests are served. It allows everything to other gateways, which have checked what they forward."""
    client_policy: Policy = ALL_ALLOWED
    """What the client may do, also if another gateway forwards its requests."""
    meter: Charges | None = None
    """None without quotas, and for requests that were charged elsewhere."""

    @property
    def sharer(self) -> tuple[int, str]:
        """What the connections of one client have in common: their cluster, and their principal, or their address if
        there is no login."""
        is_named = self.principal not in {ANONYMOUS, GATEWAY}
        return id(self.cluster), str(self.principal) if is_named else self.client.ip

    @property
    def requester(self) -> Requester:
        """The client as ACLs and the audit name it."""
        return Requester(str(self.principal), self.client.ip)
