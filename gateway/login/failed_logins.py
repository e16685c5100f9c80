"""Slows down password guessing: bounds the failed logins of each address, over all its connections."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict

from gateway.security.address_quotas import Site, site_of
from gateway.security.quota_rates import TokenBucket

FAILURE_DELAY_S = 0.1
"""Kafka's `connection.failed.authentication.delay.ms`: a failed login is answered after this time."""
FAILURES_PER_S = 1 / FAILURE_DELAY_S
"""Failed logins of one address. A client reaches this rate if it fails on one connection after the other. A burst may
be as large as the failures of eleven seconds at this rate."""
MAX_ADDRESSES = 10_000
"""Above this number, the address whose last failure is oldest is forgotten."""


class FailedLogins:
    """Shared by all listeners. No user is locked out: only the address has to wait, before a password is checked."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[Site, TokenBucket] = OrderedDict()

    def count(self, host: str) -> None:
        """Record a failed login."""
        site = site_of(host)
        bucket = self._buckets.setdefault(site, TokenBucket())
        bucket.take(1, FAILURES_PER_S, _now_ms())
        self._buckets.move_to_end(site)
        if len(self._buckets) > MAX_ADDRESSES:
            self._buckets.popitem(last=False)

    def wait_s(self, host: str) -> float:
        """Seconds until the address may try again."""
        bucket = self._buckets.get(site_of(host))
        return 0.0 if bucket is None else bucket.throttle_time_ms(FAILURES_PER_S, _now_ms()) / 1_000

    async def wait(self, host: str) -> None:
        while wait_s := self.wait_s(host):
            await asyncio.sleep(wait_s)


def _now_ms() -> float:
    return time.monotonic() * 1_000
