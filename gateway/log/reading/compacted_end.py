"""The end of a compacted log for a reader: compaction may have removed the last entries, so that they never arrive."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from gateway.log.bounds.topic_owner import as_owner
from gateway.log.entries.undispatched import none_is_dispatched
from gateway.log.reading.read_source import ReadSource
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ServiceNotReadyError
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Reader


class CompactedEnd(NamedTuple):
    """The last entry that will arrive, and the offset after the entries that will not."""

    last: Position
    offset: int


async def compacted_end(client: PulsarClient, admin: AdminClient, log: ReadSource, reader: Reader) -> CompactedEnd:
    """The end of a log for a reader of its compacted entries. Raises PulsarError and TimeoutError.

    The reader's broker may not know that another one owns the topic: what it does not have is not removed.
    """
    known = CompactedEnd(log.last_position, log.end_offset)
    last = await reader.last_position()
    if last < known.last and not await _are_removed(client, admin, log.pulsar_topic, last, known.last):
        raise ServiceNotReadyError(f"the reader of {log.pulsar_topic} does not get all entries up to {known.last}")
    return CompactedEnd(last, known.offset)


async def _are_removed(client: PulsarClient, admin: AdminClient, topic: str, behind: Position, last: Position) -> bool:
    """Whether compaction has removed the entries after ``behind``, up to ``last``, or brokers dispatch none of them."""
    stats = await as_owner(admin, topic, partial(admin.topics.internal_stats, topic))
    behind = max(behind, stats.compacted_to)
    return behind >= last or await none_is_dispatched(client, admin, topic, stats.ledgers, behind, last)
