"""The row of an API in the handler table, one call of the API, and what a handler may raise."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic

from typing_extensions import TypeIs, TypeVar

from gateway.requests.cluster import Cluster
from gateway.requests.context import Client, RequestContext
from gateway.requests.denials import DENIED
from gateway.requests.reply import Reply
from gateway.requests.routes import Route
from gateway.topics.requested_topics import RequestedTopics
from protocol.kafka.acl import AclOperation, ResourceType
from protocol.kafka.api_key import ApiKey
from protocol.kafka.buffers import Buffer
from protocol.kafka.codec import decode_request, encode_response
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.message import Message

Request_co = TypeVar("Request_co", bound=Message, default=Message, covariant=True)
"""A request."""
Response_co = TypeVar("Response_co", bound=Message, default=Message, covariant=True)
"""A response."""
Other = TypeVar("Other", bound=Message)
LARGE_FRAME_BYTES = 64 * 1024
"""Larger requests, which take at least about 5 ms to decode, are decoded in a thread, and hold memory for what they
become until they are answered. Produce is none of these."""


Handle = Callable[["Call[Any]"], Reply]
"""Answers a call."""
Guard = Callable[["Call[Any]", Handle], Reply]
"""Answers the parts that the client is not authorized for, and lets the handler answer the rest."""


@dataclass(frozen=True, slots=True)
class Api(Generic[Request_co, Response_co]):
    """`handle`, and everything else that differs between APIs.

    Its type counts as an API of any messages, so that there can be a table of APIs: each API gets only its own calls.
    """

    request: type[Request_co]
    response: type[Response_co]
    min_version: int
    max_version: int
    handle: Callable[[Call[Request_co]], Reply]
    route: Route | None = None
    """The gateway that answers, and how a request for several gateways is split; None if any gateway answers."""
    pipelined: bool = False
    """A request may run while earlier ones of its API are unanswered; its handler keeps answers from getting older."""
    decode: Callable[[type[Request_co], int, memoryview, int], Request_co] = decode_request
    """(request, version, frame, position of the body). Raises MalformedRequest."""
    encode: Callable[[type[Response_co], int, int, Response_co], list[Buffer]] = encode_response
    """(response, version, correlation id, the response) to the frame, as buffers to be written in order."""
    key: ApiKey = field(init=False)
    first_bytes: bytes = field(init=False)
    """The first bytes of its requests, after their length."""
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", ApiKey(self.request.API_KEY))
        object.__setattr__(self, "first_bytes", self.request.API_KEY.to_bytes(2, "big"))
        object.__setattr__(self, "name", self.request.__name__.removesuffix("Request"))


def at_once(respond: Callable[[Call[Request_co]], Message]) -> Callable[[Call[Request_co]], Reply]:
    """The handler of an API whose response is available at once."""
    return lambda call: Reply(respond(call))


def awaited(respond: Callable[[Call[Request_co]], Awaitable[Message]]) -> Callable[[Call[Request_co]], Reply]:
    """The handler of an API whose calls block later requests of the connection until they are answered."""

    async def prepare(call: Call[Request_co]) -> Reply:
        return Reply(await respond(call))

    return lambda call: Reply.after(prepare(call))


def asks(call: Call, request: type[Other]) -> TypeIs[Call[Other]]:
    """Whether the call has this type of request."""
    return isinstance(call.request, request)


def _free(partitions: int) -> None: ...


class ClosesConnection(Exception):
    """Raised by a handler whose API has no other way to report a failure to the client."""


@dataclass(slots=True)
class Call(Generic[Request_co]):
    """A request with its header and its context."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    request: Request_co
    context: RequestContext
    frame: bytearray | None = None
    """The frame that the request was decoded from; None if the request is not the client's own one."""
    started: float = field(default_factory=time.perf_counter)
    busy_s: float = 0.0
    """The time for which the event loop was busy with the call, as far as a quota needs it."""
    charge_mutations: Callable[[int], None] = _free
    """Charge this number of partitions to a quota, before they are created or deleted. Raises KafkaError if they are
    refused."""
    client: Client = field(init=False)
    cluster: Cluster = field(init=False)
    requested: RequestedTopics | None = field(init=False, default=None)
    """`topics`, once it was used. A copy of the call is another request's."""

    def __post_init__(self) -> None:
        self.client = self.context.client
        self.cluster = self.context.cluster

    @property
    def topics(self) -> RequestedTopics:
        """The topics that the request names, of which it may name any number."""
        if self.requested is None:
            self.requested = RequestedTopics(self.cluster.topics)
        return self.requested

    def check_age(self) -> None:
        """Raises ClosesConnection if this gateway was evicted since the client connected, and the request could then be
        one of an earlier transaction: the client may have sent it to another gateway again, and later ones after it.
        """
        route = self.api.route
        if route is not None and route.only_with_lease and self.client.incarnation != self.cluster.fleet.incarnation:
            raise ClosesConnection("the gateway was evicted since the client connected")

    def asking(self, request: Other) -> Call[Other]:
        """The same call with another request, such as a part of its own: all parts share what is found of topics."""
        call = Call(
            self.api, self.version, self.correlation_id, self.client_id, request, self.context, started=self.started,
            charge_mutations=self.charge_mutations,
        )  # fmt: skip
        call.requested = self.topics
        return call

    def count_error(self, code: ErrorCode) -> None:
        self.context.cluster.metrics.error(self.api.name, code)

    def count_denied(self, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        """Count and log that the client has not this right."""
        self.count_error(DENIED[resource_type])
        self.audit_denied(operation, resource_type, name)

    def audit_denied(self, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        """Log it, once for a request; its error is counted elsewhere, for each row of the answer."""
        self.context.policy.audit_denial(self.api.name, self.started, (operation, resource_type, name))
