"""Connections whose clients have not said who they are: few from one address, so that nobody takes the place of all."""

from __future__ import annotations

from collections import Counter
from typing import Any

import structlog

from gateway.observability.metrics import Metrics

log = structlog.get_logger()


class Arrivals:
    def __init__(self, max_per_address: int, metrics: Metrics) -> None:
        self._max_per_address = max_per_address
        self._metrics = metrics
        self._by_host: Counter[str] = Counter()

    def arrived(self, host: str) -> bool:
        """False when there are too many from there. Give each that was counted to `left`."""
        if self._by_host[host] >= self._max_per_address:
            return False
        self._by_host[host] += 1
        return True

    def left(self, host: str) -> None:
        """One has logged in, or is gone."""
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def refused(self, reason: str, address: str, **facts: Any) -> None:
        """Before its connection was one of the server's."""
        self._metrics.connections_closed.labels(reason).inc()
        log.info("connection closed", reason=reason, address=address, **facts)
