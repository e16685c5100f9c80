"""The position up to which Pulsar may delete an internal log: a durable subscription at the log's last snapshot.

The acknowledgement carries the snapshot's position as properties of the cursor. The cursor's own position does not
prove a snapshot: expiry, or an administrator, may move the cursor forward.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote_plus

from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position

SUBSCRIPTION = "~trimming"
"""No group's subscription has this name (`mirror.names`)."""
_LEDGER, _ENTRY, _TAKEN_MS, _SIZE = (f"kafka.snapshot.{name}" for name in ("ledger", "entry", "timestamp", "bytes"))


class TakenSnapshot(NamedTuple):
    """All live records are after `position`. `taken_ms` is since the epoch."""

    position: Position
    taken_ms: int
    size_bytes: int


class TrimmingCursor:
    """The cursor of one partition. Methods raise PulsarError."""

    def __init__(self, client: PulsarClient, admin: AdminClient, topic: str) -> None:
        self._client = client
        self._admin = admin
        self._topic = topic

    async def find(self) -> TakenSnapshot | None:
        """None if no snapshot was taken yet."""
        cursors = (await self._admin.topics.internal_stats(self._topic)).cursors
        by_name = {unquote_plus(name): cursor for name, cursor in cursors.items()}
        properties = by_name.get(SUBSCRIPTION, {}).get("properties") or {}
        try:
            ledger_id, entry_id, taken_ms, size = (properties[name] for name in (_LEDGER, _ENTRY, _TAKEN_MS, _SIZE))
        except KeyError:
            return None
        return TakenSnapshot(Position(ledger_id, entry_id), taken_ms, size)

    async def move(self, snapshot: TakenSnapshot) -> None:
        """Release the entries before the snapshot. Never moves the cursor back."""
        position, taken_ms, size = snapshot
        subscription = await self._client.open_subscription(self._topic, SUBSCRIPTION, _ignore)
        try:
            properties = {_LEDGER: position.ledger_id, _ENTRY: position.entry_id, _TAKEN_MS: taken_ms, _SIZE: size}
            await subscription.ack_cumulative(position, properties)
        finally:
            await subscription.close()


def _ignore(error: PulsarError) -> None:
    """No action: the next request of the consumer fails."""
