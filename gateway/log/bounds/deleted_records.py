"""The offset below which a client has deleted records (KIP-107), kept in Pulsar.

Pulsar frees whole ledgers, when their retention is over; an offset within an entry means nothing to it. So the offset
is a property of the partition's managed ledger: whichever gateway looks finds it, and it goes with the partition.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.pulsar.admin import AdminClient

PROPERTY = "kafka.log.start"


async def read_deleted(admin: AdminClient, topic: str) -> int:
    """Records before this offset are deleted; 0 if none are. Raises PulsarError."""
    return deleted_before(await admin.topics.managed_ledger_properties(topic))


def deleted_before(properties: Mapping[str, str]) -> int:
    """The same by the properties of the managed ledger."""
    text = properties.get(PROPERTY, "")
    return int(text) if text.isdecimal() else 0


async def write_deleted(admin: AdminClient, topic: str, offset: int) -> None:
    """The broker answers when the metadata store has it. Raises PulsarError."""
    await admin.topics.put_properties(topic, {PROPERTY: str(offset)})
