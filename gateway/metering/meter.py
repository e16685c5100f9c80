"""What clients use, charged to their quotas; who is over one is answered at once and waits then (KIP-13, 124, 219).

Bytes of Produce are those of the request, bytes of Fetch those of the records in the answer. A fetch above the quota
gets an empty answer, and is not charged: it will be asked again. Time is that of the event loop in the handler: what a
request waits for is free, and so is what threads decode and encode.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gateway.fetching.fetch_answer import FetchAnswer
from gateway.metering.mutations import MUTATIONS
from gateway.requests.call import Call, Handle, asks
from gateway.requests.reply import RelayedResponse, Reply, Response
from gateway.security.quota_entities import CONSUMER_BYTE_RATE, MUTATION_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from gateway.security.quota_rates import WINDOW_MS
from gateway.security.quotas import Limit, Quotas
from protocol.kafka.handwritten.fetch_request import limit_max_bytes
from protocol.kafka.messages.records import FetchRequest, ProduceRequest

PERCENT = 100.0


def _now_ms() -> float:
    return time.monotonic() * 1_000


class Meter:
    def __init__(self, quotas: Quotas, now_ms: Callable[[], float] = _now_ms) -> None:
        self._quotas = quotas
        self._now_ms = now_ms

    @property
    def is_needed(self) -> bool:
        """Somebody has a quota."""
        return self._quotas.are_set

    # Before the answer

    def handle(self, call: Call[Any], handle: Handle) -> Reply:
        """Let the request be handled, as far as the quotas allow."""
        begun_s = time.perf_counter()
        try:
            if asks(call, FetchRequest):
                self._bound(call)
            mutations = MUTATIONS.get(call.api.key)
            limit = None if mutations is None else self._limit(MUTATION_RATE, call)
            if mutations is None or limit is None:
                return handle(call)
            bucket = self._quotas.bucket(limit, self._now_ms())
            return mutations(call, handle, bucket, limit.bound, self._now_ms())
        finally:
            call.busy_s = time.perf_counter() - begun_s

    def _bound(self, call: Call[FetchRequest]) -> None:
        """No answer may be larger than what the quota ever allows at once."""
        limit = self._limit(CONSUMER_BYTE_RATE, call)
        if limit is not None:
            most = self._quotas.most_in_window(limit)
            call.request.max_bytes = min(call.request.max_bytes, most)
            call.request.min_bytes = min(call.request.min_bytes, most)
            if call.frame is not None:
                limit_max_bytes(call.frame, call.version, most)

    # With the answer

    def charge(self, call: Call[Any], response: Response) -> tuple[Response, int]:
        """The answer, and how long the client is to wait behind it (ms)."""
        now_ms = self._now_ms()
        request_ms = min(WINDOW_MS, self._charge(REQUEST_PERCENTAGE, call, call.busy_s * PERCENT, now_ms))
        if asks(call, ProduceRequest):
            bytes_ms = self._charge(PRODUCER_BYTE_RATE, call, len(call.frame or b""), now_ms)
            return response, bytes_ms if call.request.acks == 0 else max(bytes_ms, request_ms)
        if asks(call, FetchRequest):
            return self._charge_fetch(call, response, request_ms, now_ms)
        if call.api.key in MUTATIONS:
            limit = self._limit(MUTATION_RATE, call)
            if limit is not None:
                bucket = self._quotas.bucket(limit, now_ms)
                request_ms = max(request_ms, bucket.throttle_time_ms(limit.bound, now_ms))
        return response, request_ms

    def _charge_fetch(
        self, call: Call[FetchRequest], response: Response, request_ms: int, now_ms: float
    ) -> tuple[Response, int]:
        size_bytes = _fetched_bytes(response)
        bytes_ms = self._charge(CONSUMER_BYTE_RATE, call, size_bytes, now_ms)
        throttle_time_ms = max(bytes_ms, request_ms)
        if throttle_time_ms and size_bytes:
            self._charge(CONSUMER_BYTE_RATE, call, -size_bytes, now_ms)
            request = call.request
            response = FetchAnswer(session_id=request.session_id if request.session_epoch > 0 else 0)
        return response, throttle_time_ms

    def _charge(self, quota: str, call: Call[Any], amount: float, now_ms: float) -> int:
        limit = self._limit(quota, call)
        return 0 if limit is None else self._quotas.charge(quota, limit, amount, now_ms)

    def _limit(self, quota: str, call: Call[Any]) -> Limit | None:
        return self._quotas.limit(quota, call.context.principal.name, call.client_id or "")


def _fetched_bytes(response: Response) -> int:
    if isinstance(response, RelayedResponse):
        return len(response.frame)
    if not isinstance(response, FetchAnswer):
        return 0
    return sum(row.records.size_bytes for topic in response.responses for row in topic.partitions)

