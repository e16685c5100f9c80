"""The times of membership, and the conditions between them."""

from __future__ import annotations

from dataclasses import dataclass

HEARTBEATS_A_LEASE = 3
"""Heartbeats that are due within one lease: one may be lost, and one late."""
LEASE_MARGIN = 1.1
"""Between the end of a lease and the eviction of its holder. It covers clocks of different speed (the difference is far
smaller), and the moment between checking the lease and acting on it."""


@dataclass(frozen=True, slots=True)
class FleetTimes:
    heartbeat_ms: int
    lease_ms: int
    """Counted from the moment when a heartbeat was sent, by the sender's clock."""
    dead_after_ms: int
    """Counted from the moment when the last heartbeat was read, by the reader's clock, so it starts later."""
    cut_off_ms: int
    """Counted from the last acknowledged write. After this time a gateway is not ready, if there are other members."""

    def contradiction(self) -> str | None:
        """One sentence that says why these times contradict each other."""
        if HEARTBEATS_A_LEASE * self.heartbeat_ms > self.lease_ms:
            return f"lease_ms must be at least {HEARTBEATS_A_LEASE} times heartbeat_ms"
        if silence_ms(self.lease_ms) > self.dead_after_ms:
            return f"dead_after_ms must be at least {LEASE_MARGIN} times lease_ms"
        return None


def silence_ms(lease_ms: int) -> int:
    """The silence after which a member with this lease has certainly stopped leading."""
    return round(LEASE_MARGIN * lease_ms)
