"""From a frame to its handler: header, version, body; and from the handler's response to bytes."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple, Protocol

from gateway.authorization.table import GUARDS
from gateway.config.gateway_config import FORWARDING_LISTENER
from gateway.forwarding.forwarder import Forwarder, Forwarding
from gateway.handlers.cluster.api_versions import UnknownVersion
from gateway.handlers.known_requests import KnownRequests
from gateway.handlers.place import Place
from gateway.handlers.records.expected_produces import ExpectedProduces
from gateway.handlers.table import APIS
from gateway.metering.meter import Meter
from gateway.requests.call import LARGE_FRAME_BYTES, Api, Call, asks
from gateway.requests.cluster import Cluster
from gateway.requests.context import ANONYMOUS, GATEWAY, Client, Listener, Principal, RequestContext
from gateway.requests.denials import DenialLog
from gateway.requests.policy import ALL_ALLOWED, Authorized, Policy
from gateway.requests.reply import RelayedResponse, Reply, Response
from gateway.security.acls import Requester
from gateway.security.authorizer import Authorizer
from protocol.kafka import codec
from protocol.kafka.api_key import ApiKey
from protocol.kafka.buffers import Buffer
from protocol.kafka.codec import MalformedRequest
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.message import Throttled
from protocol.kafka.messages.records import ProduceRequest
from protocol.kafka.value_counts import has_more_rows

API_KEY_BYTES = 2
LARGE_ANSWER_ROWS = 2_000
"""Larger responses take at least about 5 ms to encode."""
FIRST_PREPARED = 4
"""The versions of Fetch before this one need down-conversion, and few clients use them."""
API_VERSIONS = APIS[ApiKey.ApiVersions]
PRODUCE = APIS[ApiKey.Produce]


async def prepare_fetch() -> None:
    """Compile the codecs of Fetch, one version in each turn of the event loop. The first fetch of a version would
    otherwise take some 5 ms longer, and all other clients with it."""
    fetch = APIS[ApiKey.Fetch]
    for version in range(FIRST_PREPARED, fetch.max_version + 1):
        codec.prepare(fetch.request, fetch.response, version)
        await asyncio.sleep(0)


class UnsupportedRequest(MalformedRequest):
    """An API or a version that the gateway does not serve. Kafka closes the connection in this case."""


class ServedCluster(NamedTuple):
    """The parts that answer requests to one cluster."""

    cluster: Cluster
    forwarding: Forwarding | None = None
    """Present if a listener has a single address."""
    authorizer: Authorizer | None = None
    """If it is None, everything is allowed."""
    meter: Meter | None = None
    """Charges requests to the quotas of clients."""


class Entrance(Protocol):
    """Decides to which cluster a connection belongs."""

    async def enter(
        self, listener: Listener, principal: Principal, asked: str | None, *, is_own_user: bool = False
    ) -> ServedCluster:
        """`asked` is the cluster that the client names, or the cluster that has this user. Raises ClusterRefused."""

    async def home(self, listener: Listener, user: str) -> ServedCluster | None:
        """The cluster among whose own users `user` is searched; None if it is the fleet's own cluster.

        Raises ClusterRefused.
        """


class RequestHandler(Protocol):
    """Answers the requests of one connection."""

    def handle_known(self, frame: bytearray, context: RequestContext, place: Place) -> bool:
        """Handle a request that resembles an earlier one of the connection. If it returns False, call `handle`."""

    def handle(self, call: Call) -> Reply: ...

    def expect(self, call: Call) -> None:
        """The call will be handled when an earlier one is. Begin what it will wait for, as far as that is allowed."""

    def close(self) -> None:
        """The client has disconnected."""


class LocalHandler:
    """Handles requests in this gateway, for a client that chooses the gateway by itself."""

    def __init__(self) -> None:
        self._known = KnownRequests()
        self.handle_known = self._known.handle
        self._expected: ExpectedProduces | None = None

    def handle(self, call: Call) -> Reply:
        call.check_age()
        reply = call.api.handle(call)
        self._known.learn(call)
        return reply

    def expect(self, call: Call) -> None:
        if asks(call, ProduceRequest):
            self._expected = self._expected or ExpectedProduces()
            self._expected.expect(call)

    def close(self) -> None:
        self._known.close()
        if self._expected is not None:
            self._expected.close()


class GuardedHandler:
    """Handles requests of a client that is subject to authorization."""

    def __init__(self, handler: RequestHandler) -> None:
        """`handler` handles the requests that are allowed."""
        self._handler = handler
        self.handle_known, self.expect = handler.handle_known, handler.expect

    def handle(self, call: Call) -> Reply:
        return GUARDS[call.api.key](call, self._handler.handle)

    def close(self) -> None:
        self._handler.close()


class MeteredHandler:
    """Handles requests of a client that may have quotas."""

    def __init__(self, handler: RequestHandler, meter: Meter) -> None:
        self._handler = handler
        self._meter = meter
        self.handle_known, self.expect = handler.handle_known, handler.expect

    def handle(self, call: Call) -> Reply:
        return self._meter.handle(call, self._handler.handle)

    def close(self) -> None:
        self._handler.close()


class Dispatcher:
    """Turns frames into calls of the handler table, and their responses into frames."""

    def __init__(
        self,
        cluster: Cluster,
        forwarding: Forwarding | None = None,
        authorizer: Authorizer | None = None,
        meter: Meter | None = None,
        entrance: Entrance | None = None,
    ) -> None:
        """The arguments are for the fleet's own cluster; `entrance` is None if there are no other clusters."""
        self.own = ServedCluster(cluster, forwarding, authorizer, meter)
        self.entrance = entrance
        self._limits = cluster.config.limits
        self._denials = DenialLog()

    def context(
        self, client: Client, listener: Listener, principal: Principal = ANONYMOUS, served: ServedCluster | None = None
    ) -> RequestContext:
        """The context of a connection: new, or after its client has logged in or its cluster was chosen."""
        served = served or self.own
        policy = self._policy(served, client, principal)
        # Requests that another gateway forwards were authorized and charged in that gateway.
        if listener.name == FORWARDING_LISTENER:
            return RequestContext(client, listener, served.cluster, principal, ALL_ALLOWED, policy)
        return RequestContext(client, listener, served.cluster, principal, policy, policy, served.meter)

    def _policy(self, served: ServedCluster, client: Client, principal: Principal) -> Policy:
        if served.authorizer is None or principal == GATEWAY:
            return ALL_ALLOWED
        return Authorized(served.authorizer, lambda: Requester(str(principal), client.ip), self._denials)

    def handler(self, context: RequestContext, served: ServedCluster | None = None) -> RequestHandler:
        served = served or self.own
        handler: RequestHandler = LocalHandler()
        if served.forwarding is not None and context.listener.single_address:
            handler = Forwarder(served.forwarding, context.client)
        if context.policy is not ALL_ALLOWED:
            handler = GuardedHandler(handler)
        if served.meter is not None and context.meter is not None:
            handler = MeteredHandler(handler, served.meter)
        return handler

    def begin(self, frame: bytearray, context: RequestContext) -> Call:
        """Decode a request. Raises MalformedRequest when the connection has to end."""
        view = memoryview(frame)
        api_key, version, _ = codec.parse_fixed_header(view)
        api = APIS.get(api_key)
        if api is None:
            raise UnsupportedRequest(f"unknown API key {api_key}")
        if not api.min_version <= version <= api.max_version:
            if api is not API_VERSIONS:
                raise UnsupportedRequest(f"{api.name} v{version} is not supported")
            return self._unsupported_api_versions(view, context)
        if api_key != ApiKey.Produce and len(frame) > context.cluster.config.limits.max_control_request_bytes:
            raise MalformedRequest(f"{api.name} request of {len(frame)} bytes")
        header = codec.parse_header(view, flexible=codec.is_flexible(api.request, version))
        request = api.decode(api.request, version, view, header.body)
        return Call(api, version, header.correlation_id, header.client_id, request, context, frame)

    def _unsupported_api_versions(self, view: memoryview, context: RequestContext) -> Call:
        # KIP-511: an unknown version gets an answer in v0, so that the client learns which versions are supported.
        header = codec.parse_header(view[:8], flexible=False) if len(view) < 10 else None
        correlation_id = header.correlation_id if header else codec.parse_fixed_header(view)[2]
        return Call(API_VERSIONS, 0, correlation_id, None, UnknownVersion(), context)

    def is_large(self, frame: bytearray) -> bool:
        """Whether decoding the frame takes so long that it has to be done in another thread."""
        if len(frame) <= LARGE_FRAME_BYTES or _api_key(frame) == ApiKey.Produce:
            return False
        return len(frame) <= self._limits.max_control_request_bytes  # A larger frame is refused instead of decoded.

    def is_large_answer(self, call: Call, response: Response) -> bool:
        """Whether encoding the response takes so long that it has to be done in another thread."""
        if response is None or call.api.key is ApiKey.Produce or isinstance(response, RelayedResponse):
            return False
        return has_more_rows(call.api.response, response, LARGE_ANSWER_ROWS)

    def is_pipelined(self, frame: bytearray, before: Api) -> bool:
        """Whether a request may start although the previous one is not answered."""
        return before.pipelined and frame.startswith(before.first_bytes)

    def may_be_expected(self, frame: bytearray, before: Api) -> bool:
        """Whether something can be begun for a request while the previous one is being prepared."""
        return before is PRODUCE and frame.startswith(PRODUCE.first_bytes)

    def complete(self, call: Call, response: Response) -> Response:
        """Count the request, and mute a client that is over its quota (KIP-219). May return another response."""
        meter = call.context.meter
        if meter is not None and meter.is_needed:
            response, throttle_time_ms = meter.charge(call, response)
            if throttle_time_ms:
                call.client.mute(throttle_time_ms)
                if isinstance(response, RelayedResponse):  # its leader did not know
                    response = codec.decode_response(call.api.response, call.version, memoryview(response.frame))
                if isinstance(response, Throttled):
                    response.throttle_time_ms = throttle_time_ms
        metrics = call.cluster.metrics.request(call.api.name, call.version)
        metrics.answered(time.perf_counter() - call.started)
        code = getattr(response, "error_code", 0)
        if code:
            call.cluster.metrics.error(call.api.name, ErrorCode(code))
        return response

    def charge_unanswered(self, call: Call, response: Response = None) -> None:
        """Charge a request whose client has disconnected before its answer, as Kafka does."""
        meter = call.context.meter
        if meter is not None and meter.is_needed:
            meter.charge(call, response)

    def encode(self, call: Call, response: Response) -> list[Buffer]:
        """The frame of the response. May be called in any thread."""
        if response is None:
            return []
        if isinstance(response, RelayedResponse):
            return codec.readdress_response(response.frame, call.correlation_id)
        return call.api.encode(call.api.response, call.version, call.correlation_id, response)


def _api_key(frame: bytearray) -> int:
    return int.from_bytes(frame[:API_KEY_BYTES], "big")
