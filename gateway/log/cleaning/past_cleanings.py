"""How far a log was cleaned at which times, stored in Pulsar as a property of the managed ledger.

A consumer may have read a record just before it was removed because of a later deletion of its key. It has
delete.retention.ms to reach that deletion. So a deletion is removed this time after the first cleaning that reached it
and removed everything before it (KIP-534). If a former leader writes an older list, deletions stay longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import structlog

from gateway.log.bounds.transaction_flag import flagged_position
from gateway.log.reading.entry_lookup import EntryLookup
from gateway.log.reading.positions import find_position
from gateway.log.resources import Resources
from gateway.log.transactions.checkpoint import NO_ENTRY
from gateway.pulsar.admin.topics import InternalStats
from gateway.pulsar.position import Position

PROPERTY = "kafka.cleanings"
PARTS = 32
"""A deletion stays for up to this part of delete.retention.ms longer than necessary."""
MAX_CLEANINGS = 2 * PARTS + 3

log = structlog.get_logger()


class PastCleaning(NamedTuple):
    """All of the log before an offset was clean at this time."""

    offset: int
    ended_ms: int


def reached_by(cleanings: Sequence[PastCleaning], time_ms: int) -> int:
    """The offset that cleanings had reached at that time."""
    return max((each.offset for each in cleanings if each.ended_ms <= time_ms), default=0)


def with_another(cleanings: Sequence[PastCleaning], another: PastCleaning, kept_ms: int) -> list[PastCleaning]:
    """The cleanings that are needed from now on to find how far the log was cleaned ``kept_ms`` ago."""
    since_ms = another.ended_ms - kept_ms
    found = [each for each in cleanings if each.ended_ms <= since_ms][-1:]
    found += [each for each in cleanings if each.ended_ms > since_ms]
    if len(found) > 1 and another.ended_ms - found[-2].ended_ms < kept_ms // PARTS:
        found.pop()
    return [*found, another][-MAX_CLEANINGS:]


async def read_cleanings(resources: Resources, topic: str) -> list[PastCleaning]:
    """The cleanings in the order of their times. Raises PulsarError."""
    return _cleanings(topic, await resources.admin.topics.managed_ledger_properties(topic))


def _cleanings(topic: str, properties: Mapping[str, str]) -> list[PastCleaning]:
    text = properties.get(PROPERTY, "")
    try:
        return [PastCleaning(*map(int, each.split(":"))) for each in text.split()]
    except (TypeError, ValueError) as error:
        log.warning("cannot read the times of cleanings in a property", topic=topic, error=str(error))
        return []


async def cleaned_to(resources: Resources, topic: str, stats: InternalStats) -> Position:
    """The last entry that a cleaning has reached. What is behind it was too young or undecided, although it was
    compacted. If no gateway has cleaned the log, Pulsar has, but not its transactions: where only replication brings
    them, its compaction goes on at first. Raises PulsarError and TimeoutError.
    """
    properties = await resources.admin.topics.managed_ledger_properties(topic)
    cleanings = _cleanings(topic, properties)
    if not cleanings:
        before_transactions = flagged_position(properties)
        return stats.compacted_to if before_transactions is None else min(before_transactions, stats.compacted_to)
    reached = max(each.offset for each in cleanings)
    found = await find_position(EntryLookup(resources.client, resources.admin), topic, reached)
    if found is None:
        return NO_ENTRY
    return min(found._replace(entry_id=found.entry_id - 1), stats.compacted_to)


async def write_cleanings(resources: Resources, topic: str, cleanings: Sequence[PastCleaning]) -> None:
    """Raises PulsarError."""
    text = " ".join(f"{each.offset}:{each.ended_ms}" for each in cleanings)
    await resources.admin.topics.put_properties(topic, {PROPERTY: text})
