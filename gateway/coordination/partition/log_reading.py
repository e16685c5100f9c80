"""Reading the records of an internal log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import structlog

from gateway.coordination.partition.internal_log import Record
from gateway.log.entries.entry_stream import read_entries
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry, Start
from protocol.pulsar.entry import EntryError, iter_messages

Replay = Callable[[bytes, bytes | None], None]

SLICE_RECORDS = 250
RECORD_BYTES = 512
"""Other tasks may run after this number of records of this size. A group of 1,000 members is one record of 200 KB."""
MAX_ENTRY_BYTES = 64 * 1024 * 1024

log = structlog.get_logger()


async def read_records(
    client: PulsarClient, topic: str, start: Start, end: Position, replay: Replay, *, read_compacted: bool
) -> int:
    """Replay the records from `start` to `end`, oldest first. Returns the size of the entries in bytes.

    Compaction may have removed overwritten records. Raises PulsarError and TimeoutError.
    """
    size = work = 0
    async with aclosing(read_entries(client, topic, start, end, read_compacted=read_compacted)) as entries:
        async for entry in entries:
            size += len(entry.payload)
            for key, value in _records(topic, entry):
                replay(key, value)
                work += 1 if value is None else 1 + len(value) // RECORD_BYTES
                if work >= SLICE_RECORDS:
                    work = 0
                    await asyncio.sleep(0)
    return size


def _records(topic: str, entry: Entry) -> list[Record]:
    """The entry's records that a compaction has kept; empty if the entry holds no records."""
    if entry.is_marker:
        return []
    try:
        messages = list(iter_messages(entry.metadata, entry.payload, MAX_ENTRY_BYTES))
    except EntryError as error:
        log.warning("unreadable entry in an internal topic", topic=topic, position=entry.position, error=str(error))
        return []
    return [
        (message.key, None if message.null_value else bytes(message.value))
        for message in messages
        if message.key is not None and not message.compacted_out
    ]
