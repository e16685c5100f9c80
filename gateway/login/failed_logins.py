"""Who guesses passwords is slow: failed logins of one address have a bound, however many connections it has."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from ipaddress import IPv4Address, IPv6Network

from gateway.security.address_quotas import address_of
from gateway.security.quota_rates import TokenBucket

FAILURE_DELAY_S = 0.1
"""Kafka's `connection.failed.authentication.delay.ms`: the answer to a failed login comes after it."""
FAILURES_PER_S = 1 / FAILURE_DELAY_S
"""Of one address: as many as one connection after the other may have. Those of eleven seconds may come at once."""
MAX_ADDRESSES = 10_000
"""Above it, the address that has been quiet for longest is forgotten."""
IPV6_SITE_BITS = 64
"""One client may have all addresses behind them."""

Source = IPv4Address | IPv6Network | str


class FailedLogins:
    """Of a gateway. No user is locked out: only the address waits, before any password is looked at."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[Source, TokenBucket] = OrderedDict()

    def count(self, host: str) -> None:
        """One more has failed."""
        source = _source(host)
        bucket = self._buckets.setdefault(source, TokenBucket())
        bucket.take(1, FAILURES_PER_S, _now_ms())
        self._buckets.move_to_end(source)
        if len(self._buckets) > MAX_ADDRESSES:
            self._buckets.popitem(last=False)

    def wait_s(self, host: str) -> float:
        """Before the address may try again."""
        bucket = self._buckets.get(_source(host))
        return 0.0 if bucket is None else bucket.throttle_time_ms(FAILURES_PER_S, _now_ms()) / 1_000

    async def wait(self, host: str) -> None:
        while wait_s := self.wait_s(host):
            await asyncio.sleep(wait_s)


def _source(host: str) -> Source:
    address = address_of(host)
    if address is None or isinstance(address, IPv4Address):
        return address or host
    return IPv6Network((int(address), IPV6_SITE_BITS), strict=False)


def _now_ms() -> float:
    return time.monotonic() * 1_000
