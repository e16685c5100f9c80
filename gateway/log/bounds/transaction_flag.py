"""The position after which a partition's log may hold transactions, kept in Pulsar as a managed ledger property.

A log without this property needs no search for transactions: the property is written before the first transactional
batch, and is deleted with the partition.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.position import Position

PROPERTY = "kafka.transactions.from"


def flagged_position(properties: Mapping[str, str]) -> Position | None:
    """The last entry before any transaction, from the properties of the managed ledger; None if there are none."""
    ledger_id, _, entry_id = properties.get(PROPERTY, "").partition(":")
    try:
        return Position(int(ledger_id), int(entry_id))
    except ValueError:
        return None


async def write_flag(admin: AdminClient, topic: str, last: Position) -> None:
    """Record that no transaction has a batch up to this entry. Raises PulsarError."""
    await admin.topics.put_properties(topic, {PROPERTY: f"{last.ledger_id}:{last.entry_id}"})
