"""Charges requests to quotas. A client above its quota gets its answer at once, then has to wait (KIP-13, 124, 219).

Produce is charged for the bytes of the request, Fetch for the bytes of the records in the answer. A fetch above the
quota gets an empty answer and is not charged, because the client will retry. The time of a request is what its handler
uses of the event loop: time that the request waits is free, and so are decoding and encoding in threads. A client that
disconnects is charged for its requests, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from gateway.busy_time import Measured, run_measured
from gateway.fetching.fetch_answer import FetchAnswer
from gateway.fetching.fetch_session import INITIAL_EPOCH
from gateway.metering.mutations import STRICT_VERSIONS, MutationCharges
from gateway.metering.repeated import PERCENT, RepeatedCharges
from gateway.requests.call import Call, Handle, asks
from gateway.requests.reply import RelayedResponse, Reply, Response
from gateway.security.quota_entities import CONSUMER_BYTE_RATE, MUTATION_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from gateway.security.quota_rates import WINDOW_MS
from gateway.security.quotas import Account, Quotas
from protocol.kafka.api_key import ApiKey
from protocol.kafka.messages.records import FetchRequest

_BYTE_RATES = {ApiKey.Produce: PRODUCER_BYTE_RATE, ApiKey.Fetch: CONSUMER_BYTE_RATE}
_BOUNDED = frozenset({ApiKey.Fetch, *STRICT_VERSIONS})
"""Quotas change how these requests are handled."""


class Meter:
    def __init__(self, quotas: Quotas, now_s: Callable[[], float] = time.monotonic) -> None:
        self._quotas = quotas
        self._now_s = now_s

    @property
    def is_needed(self) -> bool:
        """True if any entity has a quota."""
        return self._quotas.are_set

    # Before the answer

    def handle(self, call: Call[Any], handle: Handle) -> Reply:
        """Have the request handled, as far as the quotas allow."""
        if not self._quotas.are_set:
            return handle(call)
        if call.api.key in _BOUNDED:
            return _measured(call, run_measured(call, self._handle_bounded, call, handle))
        return _measured(call, run_measured(call, handle, call))

    def _handle_bounded(self, call: Call[Any], handle: Handle) -> Reply:
        limits = self._account(call).limits
        if asks(call, FetchRequest):
            self.bound(call)
        strict_version, limit = STRICT_VERSIONS.get(call.api.key), limits.get(MUTATION_RATE)
        if strict_version is not None and limit is not None:
            call.charge_mutations = MutationCharges(
                self._quotas.bucket(limit), limit.bound, self._now_ms, is_strict=call.version >= strict_version
            )
        return handle(call)

    def _now_ms(self) -> float:
        return self._now_s() * 1_000

    def bound(self, call: Call[FetchRequest]) -> None:
        """Limit the answer to the largest size that the quota ever allows at once."""
        limit = self._account(call).limits.get(CONSUMER_BYTE_RATE)
        if limit is not None:
            most = self._quotas.most_in_window(limit)
            call.request.max_bytes = min(call.request.max_bytes, most)
            call.request.min_bytes = min(call.request.min_bytes, most)

    # With the answer

    def charge(self, call: Call[Any], response: Response) -> tuple[Response, int]:
        """Return the answer, and how long the client has to wait after it (ms)."""
        now_ms = self._now_ms()
        key = call.api.key
        account = self._account(call)
        if key is ApiKey.Produce:
            bytes_ms = account.charge(PRODUCER_BYTE_RATE, len(call.frame or b""), now_ms)
            is_exempt = call.request.acks == 0  # from the quota of time, as in Kafka
            return response, bytes_ms if is_exempt else max(bytes_ms, _charge_time(account, call, now_ms))
        request_ms = _charge_time(account, call, now_ms)
        if key is ApiKey.Fetch:
            return _charge_fetch(account, call, response, request_ms, now_ms)
        charges = call.charge_mutations
        if isinstance(charges, MutationCharges):
            request_ms = max(request_ms, charges.throttle_time_ms())
        return response, request_ms

    def repeated(self, call: Call[Any]) -> RepeatedCharges:
        """The charges of requests that resemble this call."""
        client = call.context.principal.name, call.client_id or ""
        return RepeatedCharges(self._quotas, client, _BYTE_RATES.get(call.api.key), self._now_s)

    def _account(self, call: Call[Any]) -> Account:
        return self._quotas.account(call.context.principal.name, call.client_id or "")


def _charge_time(account: Account, call: Call[Any], now_ms: float) -> int:
    return min(WINDOW_MS, account.charge(REQUEST_PERCENTAGE, call.busy_s * PERCENT, now_ms))


def _measured(call: Call[Any], reply: Reply) -> Reply:
    """What the preparation of a reply uses of the event loop is charged, too."""
    if reply.preparation is not None:
        return Reply.after(Measured(reply.preparation, call, then=partial(_measured, call)))
    return reply


def _charge_fetch(
    account: Account, call: Call[FetchRequest], response: Response, request_ms: int, now_ms: float
) -> tuple[Response, int]:
    size_bytes = _fetched_bytes(response)
    bytes_ms = account.charge(CONSUMER_BYTE_RATE, size_bytes, now_ms)
    throttle_time_ms = max(bytes_ms, request_ms)
    if throttle_time_ms and size_bytes:
        account.charge(CONSUMER_BYTE_RATE, -size_bytes, now_ms)
        if isinstance(response, FetchAnswer):
            _discard(call, response)
        request = call.request
        response = FetchAnswer(session_id=request.session_id if request.session_epoch > INITIAL_EPOCH else 0)
    return response, throttle_time_ms


def _discard(call: Call[FetchRequest], answer: FetchAnswer) -> None:
    """The client does not get the answer: it does not learn of a new session, and an older session must not skip rows.

    Kafka creates or updates the session only if the client is not throttled.
    """
    if call.request.session_epoch == INITIAL_EPOCH:
        call.cluster.fetch_sessions.close(call.client.host, answer.session_id)
        return
    for topic in answer.responses:
        for row in topic.partitions:
            row.fetched.forget_answered()


def _fetched_bytes(response: Response) -> int:
    if isinstance(response, RelayedResponse):
        return len(response.frame)
    if not isinstance(response, FetchAnswer):
        return 0
    return sum(row.records.size_bytes for topic in response.responses for row in topic.partitions)

