"""The times that members live by, and what must hold between them."""

from __future__ import annotations

from dataclasses import dataclass

HEARTBEATS_A_LEASE = 3
"""So many heartbeats may be due before a lease runs out: one may be lost, and one late."""
LEASE_MARGIN = 1.1
"""Between the end of a lease and its holder's death: for clocks that run unequally fast (they differ by much less), and
for the moment between looking at the lease and acting on it."""


@dataclass(frozen=True, slots=True)
class FleetTimes:
    heartbeat_ms: int
    lease_ms: int
    """Counted from the moment when a heartbeat was sent, by the sender's clock."""
    dead_after_ms: int
    """Counted from the moment when the last heartbeat was read, by the reader's clock: it starts later."""
    cut_off_ms: int
    """Counted from the last write that Pulsar acknowledged: then a gateway is not ready, if others are."""

    def contradiction(self) -> str | None:
        """Why these times cannot be, in one sentence."""
        if HEARTBEATS_A_LEASE * self.heartbeat_ms > self.lease_ms:
            return f"lease_ms must be at least {HEARTBEATS_A_LEASE} times heartbeat_ms"
        if silence_ms(self.lease_ms) > self.dead_after_ms:
            return f"dead_after_ms must be at least {LEASE_MARGIN} times lease_ms"
        return None


def silence_ms(lease_ms: int) -> int:
    """How long nothing must have been heard of a member with this lease, before it has surely stopped leading."""
    return round(LEASE_MARGIN * lease_ms)
