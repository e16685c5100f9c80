"""Charges the requests that one client repeats: the fast paths of frequent APIs use it for their responses."""

from __future__ import annotations

from collections.abc import Callable

from gateway.security.quota_entities import REQUEST_PERCENTAGE
from gateway.security.quota_rates import Rate, free_amount
from gateway.security.quotas import Quotas

PERCENT = 100.0


class RepeatedCharges:
    """Charges the quota of a kind of bytes, and the one of request time, of one user with one client id.

    Both quotas are found once, and again when any quota has changed.
    """

    __slots__ = ("_bytes", "_client", "_now_ms", "_quota", "_quotas", "_state", "_time", "_version")

    def __init__(self, quotas: Quotas, client: tuple[str, str], quota: str | None, now_ms: Callable[[], float]) -> None:
        """`client` is the user and the client id, and `quota` the one of bytes."""
        self._quotas = quotas
        self._state = quotas.state
        self._client = client
        self._quota = quota
        self._now_ms = now_ms
        self._version = -1
        self._bytes: tuple[Rate, float] | None = None
        self._time: tuple[Rate, float] | None = None
        """The rate that all clients with this quota share, and the amount that is free."""

    def charge_within(self, size_bytes: int, busy_s: float) -> bool:
        """Charge a request if its client stays within its quotas.

        If it returns False, nothing was charged: the client may have to wait, and `Charges.charge` computes how long.
        """
        if self._version != self._state.quotas_version:
            self._find()
        of_bytes, of_time = self._bytes, self._time
        if of_bytes is None and of_time is None:
            return True
        now_ms = self._now_ms()
        if of_bytes is not None and not of_bytes[0].record_within(size_bytes, of_bytes[1], now_ms):
            return False
        if of_time is None or of_time[0].record_within(busy_s * PERCENT, of_time[1], now_ms):
            return True
        if of_bytes is not None:
            of_bytes[0].record(-size_bytes, now_ms)
        return False

    def has_room(self, size_bytes: int, busy_s: float) -> bool:
        """Whether `charge_within` would charge this."""
        if self._version != self._state.quotas_version:
            self._find()
        of_bytes, of_time = self._bytes, self._time
        if of_bytes is not None and not of_bytes[0].has_room(size_bytes, of_bytes[1]):
            return False
        return of_time is None or of_time[0].has_room(busy_s * PERCENT, of_time[1])

    def record(self, size_bytes: int, busy_s: float) -> None:
        """Charge a request, also above the quotas."""
        if self._version != self._state.quotas_version:
            self._find()
        of_bytes, of_time, now_ms = self._bytes, self._time, self._now_ms()
        if of_bytes is not None:
            of_bytes[0].record(size_bytes, now_ms)
        if of_time is not None:
            of_time[0].record(busy_s * PERCENT, now_ms)

    def _find(self) -> None:
        account = self._quotas.account(*self._client)
        found = [
            (account.rates[quota], free_amount(account.limits[quota].bound)) if quota in account.limits else None
            for quota in (self._quota or "", REQUEST_PERCENTAGE)
        ]
        self._bytes, self._time = found
        self._version = account.version
