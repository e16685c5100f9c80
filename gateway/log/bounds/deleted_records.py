"""The offset below which a client has deleted records (KIP-107), kept in Pulsar.

Pulsar deletes whole ledgers when their retention has expired; it cannot delete up to an offset within an entry. So the
offset is a property of the partition's managed ledger: every gateway finds it, and it is deleted with the partition.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.pulsar.admin.client import AdminClient

PROPERTY = "kafka.log.start"


async def read_deleted(admin: AdminClient, topic: str) -> int:
    """The offset before which records are deleted; 0 if none are. Raises PulsarError."""
    return deleted_before(await admin.topics.managed_ledger_properties(topic))


def deleted_before(properties: Mapping[str, str]) -> int:
    """The offset before which records are deleted, from the properties of the managed ledger; 0 if none are."""
    text = properties.get(PROPERTY, "")
    return int(text) if text.isdecimal() else 0


async def write_deleted(admin: AdminClient, topic: str, offset: int) -> None:
    """Returns when the broker has stored the offset in the metadata store. Raises PulsarError."""
    await admin.topics.put_properties(topic, {PROPERTY: str(offset)})
