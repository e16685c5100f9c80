"""The offset below which a client has deleted records (KIP-107), kept in Pulsar.

Pulsar deletes whole ledgers when their retention has expired; it cannot delete up to an offset within an entry. So the
offset is a property of the partition's managed ledger: every gateway finds it, and it is deleted with the partition.
Each deletion has its own property, and the farthest one is valid: a former leader that writes late must not bring
records back.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.pulsar.admin.client import AdminClient

PROPERTY = "kafka.log.start"
"""Of the deletion that was written last, as gateways of older versions read and write it."""
PREFIX = "kafka.log.start."
"""Followed by the offset. Those of earlier deletions are removed, so there are few."""


async def read_deleted(admin: AdminClient, topic: str) -> int:
    """The offset before which records are deleted; 0 if none are. Raises PulsarError."""
    return deleted_before(await admin.topics.managed_ledger_properties(topic))


def deleted_before(properties: Mapping[str, str]) -> int:
    """The offset before which records are deleted, from the properties of the managed ledger; 0 if none are."""
    texts = [properties.get(PROPERTY, ""), *map(_offset_of, properties)]
    return max((int(text) for text in texts if text.isdecimal()), default=0)


async def write_deleted(admin: AdminClient, topic: str, offset: int) -> None:
    """Returns when the broker has stored the offset in the metadata store. Raises PulsarError."""
    topics = admin.topics
    await topics.put_properties(topic, {PROPERTY: str(offset), f"{PREFIX}{offset}": str(offset)})
    for key in await topics.managed_ledger_properties(topic):
        earlier = _offset_of(key)
        if earlier.isdecimal() and int(earlier) < offset:
            await topics.remove_property(topic, key)


def _offset_of(key: str) -> str:
    """Of the property of a deletion; empty if it is another property."""
    return key.removeprefix(PREFIX) if key.startswith(PREFIX) else ""
