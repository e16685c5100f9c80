"""From where on a partition's log may hold transactions, kept in Pulsar as a property of the managed ledger.

Without it nobody has to look: it is written before the first transactional batch, and goes with the partition.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.pulsar.admin import AdminClient
from gateway.pulsar.position import Position

PROPERTY = "kafka.transactions.from"


def flagged_position(properties: Mapping[str, str]) -> Position | None:
    """The last entry without transactions before it, by the managed ledger's properties; None if there are none."""
    ledger_id, _, entry_id = properties.get(PROPERTY, "").partition(":")
    try:
        return Position(int(ledger_id), int(entry_id))
    except ValueError:
        return None


async def write_flag(admin: AdminClient, topic: str, last: Position) -> None:
    """No transaction has a batch up to this entry. Raises PulsarError."""
    await admin.topics.put_properties(topic, {PROPERTY: f"{last.ledger_id}:{last.entry_id}"})
