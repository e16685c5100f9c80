"""What the quotas of a client are, and what it has used of them.

The first of these that has the quota decides, and all clients whom it describes by the same names share it (KIP-55):
user and client id, user and any client id, user, any user and client id, any user and any client id, any user, client
id, any client id.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.security.quota_entities import CLIENT_ID, USER
from gateway.security.quota_rates import WINDOW_MS, Rate, TokenBucket
from gateway.security.records import Entity
from gateway.security.state import SecurityState

MAX_METERS = 10_000
"""Above it, those that nobody uses are forgotten."""
MAX_KNOWN = 10_000


class Limit(NamedTuple):
    bound: float
    sharers: tuple[str, str]
    """User and client id; empty is whatever they are."""


class Quotas:
    def __init__(self, state: SecurityState) -> None:
        self._state = state
        self._known: dict[tuple[str, str, str], Limit | None] = {}
        self._version = -1
        self._rates: dict[tuple[str, tuple[str, str]], Rate] = {}
        self._buckets: dict[tuple[str, str], TokenBucket] = {}

    @property
    def are_set(self) -> bool:
        return bool(self._state.quotas)

    def limit(self, quota: str, user: str, client_id: str) -> Limit | None:
        if self._version != self._state.quotas_version or len(self._known) > MAX_KNOWN:
            self._known.clear()
            self._version = self._state.quotas_version
        key = (quota, user, client_id)
        if key not in self._known:
            self._known[key] = self._find(quota, user, client_id)
        return self._known[key]

    def _find(self, quota: str, user: str, client_id: str) -> Limit | None:
        both, of_user, of_client = (user, client_id), (user, ""), ("", client_id)
        levels: tuple[tuple[Entity, tuple[str, str]], ...] = (
            (frozenset({(USER, user), (CLIENT_ID, client_id)}), both),
            (frozenset({(USER, user), (CLIENT_ID, None)}), both),
            (frozenset({(USER, user)}), of_user),
            (frozenset({(USER, None), (CLIENT_ID, client_id)}), both),
            (frozenset({(USER, None), (CLIENT_ID, None)}), both),
            (frozenset({(USER, None)}), of_user),
            (frozenset({(CLIENT_ID, client_id)}), of_client),
            (frozenset({(CLIENT_ID, None)}), of_client),
        )
        for entity, sharers in levels:
            bound = self._state.quotas.get(entity, {}).get(quota)
            if bound is not None:
                return Limit(bound, sharers)
        return None

    def charge(self, quota: str, limit: Limit, amount: float, now_ms: float) -> int:
        """How long the client is to wait now (ms)."""
        key = (quota, limit.sharers)
        rate = self._rates.get(key)
        if rate is None:
            self._forget_idle(now_ms)
            rate = self._rates[key] = Rate()
        rate.record(amount, now_ms)
        return rate.throttle_time_ms(limit.bound, now_ms)

    def most_in_window(self, limit: Limit) -> int:
        """More than that at once is over the quota in any case."""
        return max(1, int(limit.bound * 10 * WINDOW_MS / 1_000))

    def bucket(self, limit: Limit, now_ms: float) -> TokenBucket:
        """Of changes of topics."""
        bucket = self._buckets.get(limit.sharers)
        if bucket is None:
            self._forget_idle(now_ms)
            bucket = self._buckets[limit.sharers] = TokenBucket()
        return bucket

    def _forget_idle(self, now_ms: float) -> None:
        if len(self._rates) > MAX_METERS:
            self._rates = {key: rate for key, rate in self._rates.items() if not rate.is_idle(now_ms)}
        if len(self._buckets) > MAX_METERS:
            self._buckets = {key: each for key, each in self._buckets.items() if not each.is_idle(now_ms)}
