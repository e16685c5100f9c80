"""The position after which a partition's log may hold transactions, kept in Pulsar as a managed ledger property.

A log without this property needs no search for transactions: the property is written before the first transactional
batch, and is deleted with the partition.

Copies from other clusters come without it. They keep what gateways there have written into each entry of a log with
transactions: a checkpoint, or the position of one. While a replicated log has no transactions, each entry says up to
where its gateway knows that.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.log.entries.log_entry import gateway_properties
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.position import Position, parse_position
from gateway.pulsar.reader import Entry
from protocol.pulsar.frames import encode_metadata_properties

PROPERTY = "kafka.transactions.from"
CHECKPOINT, CHECKPOINT_AT = "kafka.checkpoint", "kafka.checkpoint.at"
NONE_UP_TO = "kafka.transactions.none.to"
REPLICATORS = "pulsar.repl."
"""The cursor of a broker that copies entries to another cluster: this prefix, and the cluster's name."""
_OF_ENTRIES = {CHECKPOINT.encode(), CHECKPOINT_AT.encode()}
_NONE_UP_TO = NONE_UP_TO.encode()


def flagged_position(properties: Mapping[str, str]) -> Position | None:
    """The last entry before any transaction, from the properties of the managed ledger; None if there are none."""
    return parse_position(properties.get(PROPERTY, ""))


def shows_transactions(entry: Entry) -> bool:
    """Whether a gateway has written the entry, here or in another cluster, to a log that had transactions then."""
    return any(each.key in _OF_ENTRIES for each in gateway_properties(entry))


def none_up_to(entry: Entry) -> Position | None:
    """The entry up to which its gateway knew that there are no transactions. None if this one does not say so."""
    if entry.metadata.HasField("replicated_from"):  # a position in another cluster
        return None
    found = (each.value for each in gateway_properties(entry) if each.key == _NONE_UP_TO)
    known = parse_position(next(found, b"").decode(errors="replace"))
    return known if known is not None and known < entry.position else None


def encode_none_up_to(known: Position) -> bytes:
    """The fields of an entry's metadata that ``none_up_to`` reads."""
    return encode_metadata_properties([(NONE_UP_TO, f"{known.ledger_id}:{known.entry_id}")])


def noted_none_up_to(properties: Mapping[str, str]) -> Position | None:
    """The entry up to which some gateway has read the log without finding transactions, from the same properties."""
    return parse_position(properties.get(NONE_UP_TO, ""))


async def write_flag(admin: AdminClient, topic: str, last: Position) -> None:
    """Record that no transaction has a batch up to this entry. Raises PulsarError."""
    await admin.topics.put_properties(topic, {PROPERTY: f"{last.ledger_id}:{last.entry_id}"})


async def write_none_up_to(admin: AdminClient, topic: str, last: Position) -> None:
    """Record that the log was read up to this entry. Raises PulsarError."""
    await admin.topics.put_properties(topic, {NONE_UP_TO: f"{last.ledger_id}:{last.entry_id}"})
