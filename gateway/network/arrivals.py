"""Limits for connections whose clients have not logged in: their number, their number per address, and their memory.

They cannot displace clients that have logged in, nor use up the memory of those clients' requests.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import structlog

from gateway.config.limits import Limits
from gateway.network.turns import UNAUTHENTICATED, Turns
from gateway.observability.logs import LINES_PER_S, SparseLog
from gateway.observability.metrics import Metrics
from gateway.security.address_quotas import AddressQuotas, Site, site_of

MEMORY_SHARE = 8
"""These connections hold at most 1/MEMORY_SHARE of the memory of all requests."""

log = SparseLog(structlog.get_logger(), lines=LINES_PER_S)


class UnauthenticatedClient(Protocol):
    """A connection whose client has not logged in."""

    def abort(self, reason: str) -> None: ...


class Arrivals:
    def __init__(self, limits: Limits, metrics: Metrics, turns: Turns, quotas: AddressQuotas | None = None) -> None:
        """Without `quotas`, the connection rate of an address is not limited."""
        self._turns = turns
        self._quotas = quotas
        self._max_per_address = limits.max_unauthenticated_per_address
        self._max_connections = limits.max_connections
        self._budget_bytes = limits.requests_budget_bytes // MEMORY_SHARE
        self._metrics = metrics
        self._by_site: Counter[Site] = Counter()
        self._count = 0
        self._held: dict[UnauthenticatedClient, int] = {}
        self._held_bytes = 0

    def arrived(self, host: str) -> bool:
        """False if there are too many such connections, in total or from this host's site. If True, call `left` later.
        """
        site = site_of(host)
        if self._by_site[site] >= self._max_per_address or self._count >= self._max_connections:
            return False
        self._by_site[site] += 1
        self._count += 1
        return True

    def throttle_time_s(self, host: str) -> float:
        """Record a new connection. 0: accept it. Otherwise close it after this time, without an answer."""
        return 0.0 if self._quotas is None else self._quotas.throttle_time_ms(host, time.monotonic() * 1_000) / 1_000

    def take_turn(self, step: Callable[[], None]) -> None:
        """Run a step of a TLS handshake. In one turn of the event loop, all together take one slice."""

        def run(_: float) -> None:
            began_s = self._turns.now_s()
            step()
            self._turns.ran(UNAUTHENTICATED, self._turns.now_s() - began_s)

        left_s = self._turns.left_s(UNAUTHENTICATED)
        if left_s > 0:
            run(left_s)
        else:
            self._turns.wait(UNAUTHENTICATED, run)

    def left(self, host: str) -> None:
        """A client that was counted has logged in or disconnected."""
        self._count -= 1
        site = site_of(host)
        self._by_site[site] -= 1
        if not self._by_site[site]:
            del self._by_site[site]

    def holds(self, client: UnauthenticatedClient, size_bytes: int) -> None:
        """Set how many bytes of what a connection has sent are in memory. Above the budget, the connections that have
        held memory for the longest time are closed."""
        self._held_bytes += size_bytes - self._held.get(client, 0)
        if size_bytes:
            self._held[client] = size_bytes  # keeps its position in the dict
        else:
            self._held.pop(client, None)
        while self._held_bytes > self._budget_bytes:
            longest = next(iter(self._held))
            self._held_bytes -= self._held.pop(longest)
            asyncio.get_running_loop().call_soon(longest.abort, "memory limit before login")

    def refused(self, reason: str, address: str, **facts: Any) -> None:
        """Count and log a connection that was closed before it became one of the server's connections."""
        self._metrics.connections_closed.labels(reason).inc()
        log.info("connection closed", reason=reason, address=address, **facts)
