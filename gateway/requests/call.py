"""What a handler is given, and what it may answer."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.config import Config
from gateway.log.writing.refused_batches import RefusedBatches
from gateway.observability.metrics import Metrics
from gateway.requests.partition_rows import PartitionRows
from protocol.kafka.codec import Buffer, decode_request, encode_response
from protocol.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from gateway.coordination.group_service import GroupService
    from gateway.fetching.fetch_session import FetchSessions
    from gateway.fleet.fleet import Fleet
    from gateway.forwarding.forwarder import Forwarder
    from gateway.log.registry import LogRegistry
    from gateway.log.writing.producer_ids import ProducerIds
    from gateway.topics.catalog import TopicCatalog

Response = Any
"""Any object with the fields of the API's response schema as attributes; or a `PassedBack`."""

Outcome = Response | asyncio.Future[Response] | None
"""A response; a future one, while later requests of the connection go on; or None: this request has no answer."""

Handler = Callable[["Call"], "Outcome | Coroutine[Any, Any, Outcome]"]
"""A coroutine keeps later requests of its connection waiting until it returns; so appends keep their order."""


Decoder = Callable[[Any, int, memoryview, int], Any]
"""(request schema, version, frame, position of the body) to the request. Raises MalformedRequest."""

Encoder = Callable[[Any, int, int, Response], list[Buffer]]
"""(response schema, version, correlation id, response) to the frame, as buffers to be written in order."""


class ClosesConnection(Exception):
    """Raised by a handler whose API has no other way to tell the client."""


class PassedBack(NamedTuple):
    """Another gateway's response as it came: the frame behind its length, with a correlation id of its own."""

    frame: bytearray


@dataclass(frozen=True, slots=True)
class Api:
    """One row of the handler table."""

    key: int
    min_version: int
    max_version: int
    request: Any
    response: Any
    handle: Handler
    decode: Decoder = decode_request
    encode: Encoder = encode_response
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", str(self.request.__name__).removesuffix("Request"))


@dataclass(slots=True)
class Client:
    """The other end of a connection."""

    address: str
    listener: str = ""
    software_name: str = ""
    software_version: str = ""
    refused: RefusedBatches = field(default_factory=RefusedBatches)
    listing: asyncio.Future[Response] | None = None
    """The answer to its last ListOffsets that Pulsar had to be asked for."""
    forwarder: Forwarder | None = None
    """Of a client that came by a single address."""
    arrived_s: float = math.inf
    """When the last of what it sent was read (monotonic): the request that is run came then, or before."""
    close: Callable[[str], None] = lambda reason: None
    """Ends the connection, for a reason that is logged and counted."""
    number: int = field(default_factory=count().__next__)
    """No other connection of this gateway has the same."""

    @property
    def host(self) -> str:
        """As Kafka writes it: a slash and the address without its port."""
        return "/" + self.address.rpartition(":")[0]


@dataclass(frozen=True, slots=True)
class Node:
    """A gateway as clients see it: a Kafka broker."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(slots=True)
class Unread:
    """Bytes of answers that clients have not taken from us: what clients that stopped reading pin in memory."""

    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Services:
    """What handlers work with; the composition root makes it."""

    config: Config
    metrics: Metrics
    fleet: Fleet
    topics: TopicCatalog
    logs: LogRegistry
    producer_ids: ProducerIds
    fetch_sessions: FetchSessions
    unread: Unread
    groups: GroupService
    apis: dict[int, Api] = field(default_factory=dict)
    partition_rows: PartitionRows = field(default_factory=PartitionRows)

    @property
    def node_id(self) -> int:
        """This gateway's own."""
        return self.fleet.node_id

    @property
    def cluster_id(self) -> str:
        return self.config.kafka.cluster_id or self.fleet.cluster_id

    @property
    def node(self) -> Node:
        """This gateway, by the address of its first listener."""
        address = self.fleet.address
        return Node(self.fleet.node_id, address.host, address.port, self.config.kafka.rack)


@dataclass(slots=True)
class Call:
    """One request on its way."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    request: Any
    client: Client
    services: Services
    frame: bytearray | None = None
    """What the request was decoded from; None if it is another than the client's own."""
    started: float = field(default_factory=time.perf_counter)

    def asking(self, request: Any) -> Call:
        """The same for another request."""
        return replace(self, request=request, frame=None)

    def count_error(self, code: ErrorCode) -> None:
        self.services.metrics.error(self.api.name, code)
