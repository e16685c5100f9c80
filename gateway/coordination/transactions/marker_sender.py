"""Leads the markers of ended transactions to the leaders of their partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coordinator.transaction.ports import MarkerOutcome, OnMarker, TransactionMarkers


class MarkerSender:
    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms

    def write(self, markers: TransactionMarkers, on_outcome: OnMarker) -> None:
        """Call `on_outcome` exactly once for each partition, later (never inside this call), whatever happens."""

        def fail() -> None:
            for partition in markers.partitions:
                on_outcome(partition, MarkerOutcome.FAILED, self._now_ms())

        asyncio.get_running_loop().call_soon(fail)
