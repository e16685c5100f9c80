"""An API's row in the handler table, one call of it on its way, and what that may raise."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from kafka.protocol.api_key import ApiKey

from gateway.requests.cluster import Cluster
from gateway.requests.context import Client, RequestContext
from gateway.requests.reply import Reply, Response
from gateway.requests.routes import Route
from protocol.kafka.acl import AclOperation, ResourceType
from protocol.kafka.buffers import Buffer
from protocol.kafka.codec import decode_request, encode_response
from protocol.kafka.errors import ErrorCode

Handler = Callable[["Call"], Reply]

Decoder = Callable[[Any, int, memoryview, int], Any]
"""(request schema, version, frame, position of the body) to the request. Raises MalformedRequest."""

Encoder = Callable[[Any, int, int, Response], list[Buffer]]
"""(response schema, version, correlation id, response) to the frame, as buffers to be written in order."""


class Right(NamedTuple):
    """What a client needs to be allowed to do with each resource that its request names."""

    resource: ResourceType
    operation: AclOperation


@dataclass(frozen=True, slots=True)
class Api:
    """`handle` and all else that differs between APIs."""

    request: Any
    """Schema."""
    response: Any
    """Schema."""
    min_version: int
    max_version: int
    handle: Handler
    rights: tuple[Right, ...]
    """None for what everybody may ask."""
    route: Route | None = None
    """Which gateway answers, and how a request that several answer is split; None if any gateway does."""
    pipelined: bool = False
    """A request may run behind unanswered ones of its API, whose handler keeps answers from getting older."""
    decode: Decoder = decode_request
    encode: Encoder = encode_response
    key: ApiKey = field(init=False)
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", ApiKey(self.request.API_KEY))
        object.__setattr__(self, "name", str(self.request.__name__).removesuffix("Request"))


def at_once(respond: Callable[[Call], Response]) -> Handler:
    """The handler of an API whose response needs no waiting."""
    return lambda call: Reply(respond(call))


def awaited(respond: Callable[[Call], Awaitable[Response]]) -> Handler:
    """The handler of an API that later requests of the connection wait for."""

    async def prepare(call: Call) -> Reply:
        return Reply(await respond(call))

    return lambda call: Reply.after(prepare(call))


class ClosesConnection(Exception):
    """Raised by a handler whose API has no other way to tell the client."""


class RelayedResponse(NamedTuple):
    """Another gateway's response as it came: the frame behind its length, with a correlation id of its own."""

    frame: bytearray


@dataclass(slots=True)
class Call:
    """A request with its header and its context."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    request: Any
    context: RequestContext
    frame: bytearray | None = None
    """What the request was decoded from; None if it is another than the client's own."""
    started: float = field(default_factory=time.perf_counter)

    @property
    def client(self) -> Client:
        return self.context.client

    @property
    def cluster(self) -> Cluster:
        return self.context.cluster

    def asking(self, request: Any) -> Call:
        """The same for another request."""
        return replace(self, request=request, frame=None)

    def count_error(self, code: ErrorCode) -> None:
        self.context.cluster.metrics.error(self.api.name, code)
