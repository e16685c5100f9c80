"""How far open transactions hold back consumers of committed records."""

from __future__ import annotations

from coordinator.fleet.leadership import PartitionRole
from gateway.fleet.view import FleetView
from gateway.log.registry import LogRegistry


def last_stable_offset_lag(logs: LogRegistry, fleet: FleetView) -> int:
    """The largest distance from a last stable offset to its log's end, over the logs that this gateway leads.

    A log whose transactions are still being read counts when they are known.
    """
    return max(
        (
            opened.end_offset - opened.transactions.last_stable_offset
            for key, opened in logs.all_open()
            if opened.transactions.open  # few logs: whether the gateway leads it takes longer to find out
            and opened.transactions.loaded
            and fleet.role(*key) is PartitionRole.LEADING
        ),
        default=0,
    )
