"""The quotas of a client, and how much it has used of them.

The first of these entities that has the quota decides, and all clients to which it applies with the same names share
the quota (KIP-55): user and client id, user and any client id, user, any user and client id, any user and any client
id, any user, client id, any client id.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.security.quota_entities import CLIENT_ID, OF_CLIENTS, USER
from gateway.security.quota_rates import WINDOW_MS, Rate, TokenBucket
from gateway.security.records import Entity
from gateway.security.state import SecurityState

MAX_METERS = 10_000
"""Above this number, unused rates and buckets are forgotten."""
MAX_KNOWN = 10_000


class Limit(NamedTuple):
    bound: float
    sharers: tuple[str, str]
    """User and client id; an empty one stands for any."""


class Account(NamedTuple):
    """The bounded quotas of one user with one client id, and the rates that measure their use."""

    limits: dict[str, Limit]
    rates: dict[str, Rate]

    def charge(self, quota: str, amount: float, now_ms: float) -> int:
        """Record the amount. Return how long the client has to wait now (ms)."""
        limit = self.limits.get(quota)
        return 0 if limit is None else self.rates[quota].charge(amount, limit.bound, now_ms)


class Quotas:
    def __init__(self, state: SecurityState) -> None:
        self._state = state
        self._accounts: dict[tuple[str, str], Account] = {}
        self._version = -1
        self._rates: dict[tuple[str, tuple[str, str]], Rate] = {}
        self._buckets: dict[tuple[str, str], TokenBucket] = {}

    @property
    def are_set(self) -> bool:
        """True if any entity has a quota."""
        return bool(self._state.quotas)

    def account(self, user: str, client_id: str, now_ms: float) -> Account:
        if self._version != self._state.quotas_version:
            self._accounts.clear()
            self._version = self._state.quotas_version
        found = self._accounts.get((user, client_id))
        return self._open(user, client_id, now_ms) if found is None else found

    def _open(self, user: str, client_id: str, now_ms: float) -> Account:
        if len(self._accounts) >= MAX_KNOWN or len(self._rates) > MAX_METERS:
            self._accounts.clear()  # accounts refer to rates that may be forgotten
            self._forget_idle(now_ms)
        limits = {quota: self._find(quota, user, client_id) for quota in OF_CLIENTS}
        bounded = {quota: limit for quota, limit in limits.items() if limit is not None}
        rates = {quota: self._rates.setdefault((quota, each.sharers), Rate()) for quota, each in bounded.items()}
        account = self._accounts[user, client_id] = Account(bounded, rates)
        return account

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

    def most_in_window(self, limit: Limit) -> int:
        """A larger amount at once exceeds the quota in any case."""
        return max(1, int(limit.bound * 10 * WINDOW_MS / 1_000))

    def bucket(self, limit: Limit, now_ms: float) -> TokenBucket:
        """The bucket for changes of topics."""
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
