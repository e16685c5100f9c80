"""Transactions that came from another cluster by geo-replication."""

from __future__ import annotations

from contextlib import aclosing

from gateway.log.entries.entry_stream import read_entries
from gateway.log.reading.entry_lookup import EntryLookup
from gateway.log.reading.positions import find_position
from gateway.log.resources import Resources
from gateway.pulsar.position import Position, first_index


async def is_copied(resources: Resources, topic: str, first_offset: int, last: Position, *, compacted: bool) -> bool:
    """Whether the transaction that began at this offset is a copy; True also if its first entry is gone.

    ``last`` is the log's last entry. With ``compacted`` the topic is read as Pulsar's compaction has left it. Raises
    PulsarError and TimeoutError.
    """
    client, admin = resources.client, resources.admin
    position = await find_position(EntryLookup(client, admin), topic, first_offset)
    if position is None:
        return True
    reading = read_entries(client, topic, position, last, read_compacted=compacted, admin=admin)
    async with aclosing(reading) as entries:
        async for entry in entries:
            if entry.index is not None and entry.index >= first_offset:
                is_first = first_index(entry.index, entry.num_messages) <= first_offset
                return not is_first or entry.metadata.HasField("replicated_from")
    return True
