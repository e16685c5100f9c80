"""The position after which a partition's log may hold transactions, kept in Pulsar as a managed ledger property.

A log without this property needs no search for transactions: the property is written before the first transactional
batch, and is deleted with the partition.

Copies from other clusters come without it. They keep what gateways there have written into each entry of a log with
transactions: a checkpoint, or the position of one.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.log.entries.log_entry import gateway_properties
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry

PROPERTY = "kafka.transactions.from"
CHECKPOINT, CHECKPOINT_AT = "kafka.checkpoint", "kafka.checkpoint.at"
REPLICATORS = "pulsar.repl."
"""The cursor of a broker that copies entries to another cluster: this prefix, and the cluster's name."""
_OF_ENTRIES = {CHECKPOINT.encode(), CHECKPOINT_AT.encode()}


def flagged_position(properties: Mapping[str, str]) -> Position | None:
    """The last entry before any transaction, from the properties of the managed ledger; None if there are none."""
    ledger_id, _, entry_id = properties.get(PROPERTY, "").partition(":")
    try:
        return Position(int(ledger_id), int(entry_id))
    except ValueError:
        return None


def shows_copied_transactions(entry: Entry) -> bool:
    """Whether another cluster has written the entry, to a log with transactions."""
    is_copy = entry.metadata.HasField("replicated_from")
    return is_copy and any(each.key in _OF_ENTRIES for each in gateway_properties(entry))


async def write_flag(admin: AdminClient, topic: str, last: Position) -> None:
    """Record that no transaction has a batch up to this entry. Raises PulsarError."""
    await admin.topics.put_properties(topic, {PROPERTY: f"{last.ledger_id}:{last.entry_id}"})
