"""Charges the requests that one client repeats: the fast paths of frequent APIs use it for their responses."""

from __future__ import annotations

import math
from collections.abc import Callable

from gateway.security.quota_entities import REQUEST_PERCENTAGE
from gateway.security.quota_rates import Rate, RatePair, free_amount
from gateway.security.quotas import Account, Quotas

PERCENT = 100.0


class RepeatedCharges:
    """Charges the quota of a kind of bytes, and the one of request time, of one user with one client id.

    Both quotas are found once, and again when any quota has changed.
    """

    __slots__ = ("_client", "_now_s", "_quota", "_quotas", "_rates", "_state", "_version")

    def __init__(self, quotas: Quotas, client: tuple[str, str], quota: str | None, now_s: Callable[[], float]) -> None:
        """`client` is the user and the client id, and `quota` the one of bytes."""
        self._quotas = quotas
        self._state = quotas.state
        self._client = client
        self._quota = quota
        self._now_s = now_s
        self._version = -1
        self._rates: RatePair | None = None
        """Of bytes, and of percents of a second. None without quotas."""

    def charge_within(self, size_bytes: int, busy_s: float) -> bool:
        """Charge a request if its client stays within its quotas.

        If it returns False, nothing was charged: the client may have to wait, and `Charges.charge` computes how long.
        """
        if self._version != self._state.quotas_version:
            self._find()
        rates = self._rates
        return rates is None or rates.record_within(size_bytes, busy_s * PERCENT, self._now_s() * 1_000)

    def has_room(self, size_bytes: int, busy_s: float) -> bool:
        """Whether `charge_within` would charge this."""
        if self._version != self._state.quotas_version:
            self._find()
        return self._rates is None or self._rates.has_room(size_bytes, busy_s * PERCENT)

    def record(self, size_bytes: int, busy_s: float) -> None:
        """Charge a request, also above the quotas."""
        if self._version != self._state.quotas_version:
            self._find()
        if self._rates is not None:
            self._rates.record(size_bytes, busy_s * PERCENT, self._now_s() * 1_000)

    def _find(self) -> None:
        account = self._quotas.account(*self._client)
        quotas = self._quota or "", REQUEST_PERCENTAGE
        if account.limits.keys().isdisjoint(quotas):
            self._rates = None
        else:
            self._rates = RatePair(*_rate(account, quotas[0]), *_rate(account, quotas[1]))
        self._version = account.version


def _rate(account: Account, quota: str) -> tuple[Rate, float]:
    """The rate that all clients with this quota share, and the amount that is free; without a quota, any amount is."""
    limit = account.limits.get(quota)
    return (Rate(), math.inf) if limit is None else (account.rates[quota], free_amount(limit.bound))
