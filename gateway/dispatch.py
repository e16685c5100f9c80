"""From a frame to its handler: header, version, body; and from the handler's answer to bytes."""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import Any

from gateway.forwarding.forwarder import Forwarding
from gateway.handlers.table import APIS
from gateway.requests.call import Call, Client, Outcome, PassedBack, Services
from protocol.kafka import codec
from protocol.kafka.codec import Buffer, MalformedRequest
from protocol.kafka.errors import ErrorCode

PRODUCE = 0
LIST_OFFSETS = 2
OFFSET_COMMIT = 8
PIPELINED = {PRODUCE, LIST_OFFSETS, OFFSET_COMMIT}
"""Clients send many without waiting. The first and the last only add, in the order in which they came, and tell of
nothing else; ListOffsets sees to it itself that what it tells gets no older."""
PRODUCE_KEY = PRODUCE.to_bytes(2, "big")
LARGE_FRAME_BYTES = 64 * 1024
LARGE_ANSWER_ROWS = 2_000
"""Either takes about 5 ms to decode or to encode."""
API_VERSIONS = APIS[codec.API_VERSIONS]


class UnsupportedRequest(MalformedRequest):
    """An API or a version that the gateway does not serve; Kafka closes the connection on these."""


class Dispatcher:
    """Turns frames into calls of the handler table, and their responses into frames."""

    def __init__(self, services: Services, forwarding: Forwarding | None = None) -> None:
        """`forwarding` is there when a listener has a single address."""
        self._services = services
        self._forwarding = forwarding

    def welcome(self, client: Client) -> None:
        """Its connection was made."""
        if self._forwarding is not None:
            client.forwarder = self._forwarding.forwarder(client)

    def begin(self, frame: bytearray, client: Client) -> Call:
        """Decode a request. Raises MalformedRequest when the connection has to end."""
        view = memoryview(frame)
        api_key, version, _ = codec.parse_fixed_header(view)
        api = APIS.get(api_key)
        if api is None:
            raise UnsupportedRequest(f"unknown API key {api_key}")
        if not api.min_version <= version <= api.max_version:
            if api is not API_VERSIONS:
                raise UnsupportedRequest(f"{api.name} v{version} is not supported")
            return self._unsupported_api_versions(view, client)
        if api_key != PRODUCE and len(frame) > self._services.config.limits.max_control_request_bytes:
            raise MalformedRequest(f"{api.name} request of {len(frame)} bytes")
        header = codec.parse_header(view, flexible=codec.is_flexible(api.request, version))
        request = api.decode(api.request, version, view, header.body)
        return Call(api, version, header.correlation_id, header.client_id, request, client, self._services, frame)

    def _unsupported_api_versions(self, view: memoryview, client: Client) -> Call:
        # KIP-511: an unknown version is answered as v0, so that the client learns which ones there are.
        header = codec.parse_header(view[:8], flexible=False) if len(view) < 10 else None
        correlation_id = header.correlation_id if header else codec.parse_fixed_header(view)[2]
        return Call(API_VERSIONS, 0, correlation_id, None, None, client, self._services)

    def is_large(self, frame: bytearray) -> bool:
        """Decoding it takes so long that it is to be done in another thread."""
        if len(frame) <= LARGE_FRAME_BYTES or frame[:2] == PRODUCE_KEY:
            return False
        return len(frame) <= self._services.config.limits.max_control_request_bytes  # else it is not decoded

    def is_large_answer(self, call: Call, response: Any) -> bool:
        """Encoding it takes so long that it is to be done in another thread."""
        if response is None or call.api.key == PRODUCE or isinstance(response, PassedBack):
            return False
        return codec.has_more_rows(call.api.response, response, LARGE_ANSWER_ROWS)

    def is_pipelined(self, frame: bytearray, before: Call) -> bool:
        """Whether a request may run though the one before it is not answered."""
        return before.api.key in PIPELINED and frame[:2] == before.api.key.to_bytes(2, "big")

    def run(self, call: Call) -> Outcome | Coroutine[Any, Any, Outcome]:
        forwarder = call.client.forwarder
        return call.api.handle(call) if forwarder is None else forwarder.run(call)

    def finish(self, call: Call, response: Any) -> list[Buffer]:
        """Encode the answer and count it."""
        self.count(call, response)
        return self.encode(call, response)

    def count(self, call: Call, response: Any) -> None:
        metrics = self._services.metrics.request(call.api.name, call.version)
        metrics.answered(time.perf_counter() - call.started)
        code = getattr(response, "error_code", 0)
        if code:
            self._services.metrics.error(call.api.name, ErrorCode(code))

    def encode(self, call: Call, response: Any) -> list[Buffer]:
        """The answer's frame. May be called in any thread."""
        if response is None:
            return []
        if isinstance(response, PassedBack):
            return codec.readdress_response(response.frame, call.correlation_id)
        return call.api.encode(call.api.response, call.version, call.correlation_id, response)
