"""The quotas of a client, and how much it has used of them.

The first of these entities that has the quota decides, and all clients to which it applies with the same names share
the quota (KIP-55): user and client id, user and any client id, user, any user and client id, any user and any client
id, any user, client id, any client id.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import NamedTuple
from weakref import WeakValueDictionary

from gateway.security.quota_entities import CLIENT_ID, OF_CLIENTS, USER
from gateway.security.quota_rates import WINDOW_MS, Rate, TokenBucket
from gateway.security.records import Entity
from gateway.security.state import SecurityState

MAX_KNOWN = 10_000
"""Maximum number of accounts, and of buckets. For a new one, the one that was unused for longest is removed."""
MAX_NAME_CHARS = 64
"""A longer client id is replaced by its hash, because a client may choose a new one for each request."""


class Limit(NamedTuple):
    bound: float
    sharers: tuple[str, str]
    """User and client id, or its hash; an empty one stands for any."""


class Account(NamedTuple):
    """The bounded quotas of one user with one client id, and the rates that measure their use."""

    limits: dict[str, Limit]
    rates: dict[str, Rate]
    version: int
    """The version of all quotas that the limits are from."""

    def charge(self, quota: str, amount: float, now_ms: float) -> int:
        """Record the amount. Return how long the client has to wait now (ms)."""
        limit = self.limits.get(quota)
        return 0 if limit is None else self.rates[quota].charge(amount, limit.bound, now_ms)


class Quotas:
    def __init__(self, state: SecurityState) -> None:
        self.state = state
        """Its `quotas_version` increases with each change of a quota: accounts of an earlier version are outdated."""
        self._accounts: OrderedDict[tuple[str, str], Account] = OrderedDict()
        """The least recently used is first."""
        self._rates: WeakValueDictionary[tuple[str, tuple[str, str]], Rate] = WeakValueDictionary()
        """A rate exists as long as an account has it."""
        self._buckets: OrderedDict[tuple[str, str], TokenBucket] = OrderedDict()
        """The least recently used is first."""

    @property
    def are_set(self) -> bool:
        """True if any entity has a quota."""
        return bool(self.state.quotas)

    def account(self, user: str, client_id: str) -> Account:
        names = user, client_id if len(client_id) <= MAX_NAME_CHARS else _hash(client_id)
        found = self._accounts.get(names)
        if found is None or found.version != self.state.quotas_version:
            found = self._open(names, client_id)
        self._accounts.move_to_end(names)
        return found

    def _open(self, names: tuple[str, str], client_id: str) -> Account:
        limits = {quota: self._find(quota, names, client_id) for quota in OF_CLIENTS}
        bounded = {quota: limit for quota, limit in limits.items() if limit is not None}
        rates = {quota: self._rates.setdefault((quota, each.sharers), Rate()) for quota, each in bounded.items()}
        account = self._accounts[names] = Account(bounded, rates, self.state.quotas_version)
        if len(self._accounts) > MAX_KNOWN:
            self._accounts.popitem(last=False)
        return account

    def _find(self, quota: str, names: tuple[str, str], client_id: str) -> Limit | None:
        user, short_id = names
        both, of_user, of_client = names, (user, ""), ("", short_id)
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
            bound = self.state.quotas.get(entity, {}).get(quota)
            if bound is not None:
                return Limit(bound, sharers)
        return None

    def most_in_window(self, limit: Limit) -> int:
        """A larger amount at once exceeds the quota in any case."""
        return max(1, int(limit.bound * 10 * WINDOW_MS / 1_000))

    def bucket(self, limit: Limit) -> TokenBucket:
        """The bucket for changes of topics."""
        bucket = self._buckets.get(limit.sharers)
        if bucket is None:
            bucket = self._buckets[limit.sharers] = TokenBucket()
            if len(self._buckets) > MAX_KNOWN:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(limit.sharers)
        return bucket


def _hash(client_id: str) -> str:
    """The hash is longer than `MAX_NAME_CHARS`, so that it differs from every client id that is kept as it is."""
    return "sha256:" + hashlib.sha256(client_id.encode()).hexdigest()
