"""Entries that brokers keep to themselves: whoever reads a log to its end would wait for them.

They are markers, and entries that count no messages. Brokers write some, and any producer may. They hold no records,
but have offsets. Measured on 4.0.7: a broker names one as the last entry, unless it wrote it itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice

import structlog

from gateway.pulsar.admin import AdminClient
from gateway.pulsar.admin_topics import Ledger, StoredEntry
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position

SILENT_S = 1.0
"""Readers bring entries within milliseconds. Who waits for the end asks then what there is, within its `patience`."""
ANSWER_S = 2.0
MAX_AT_ONCE = 16
"""Requests; it begins with one, since mostly the last entry is one that is only late."""

log = structlog.get_logger()


async def undispatched_end(admin: AdminClient, topic: str, behind: Position, last: Position) -> int | None:
    """The offset behind the last entry, if brokers keep all entries behind one to themselves; None if not.

    Also None if the admin API does not tell.
    """
    try:
        async with asyncio.timeout(ANSWER_S):
            ledgers = (await admin.topics.internal_stats(topic)).ledgers
        return await _end_of_undispatched(admin, topic, _backwards(ledgers, behind, last))
    except (PulsarError, TimeoutError) as error:
        log.info("the admin API does not tell why no entry comes", topic=topic, last=last, error=str(error))
        return None


async def _end_of_undispatched(admin: AdminClient, topic: str, left: Iterator[Position]) -> int | None:
    end: int | None = None
    at_once = 1
    while positions := [*islice(left, at_once)]:
        async with asyncio.timeout(ANSWER_S):
            found = await asyncio.gather(*(admin.topics.entry(topic, position) for position in positions))
        for entry in found:
            if entry is not None and _is_dispatched(entry):
                return None
            if end is None and entry is not None and entry.index is not None:
                end = entry.index + 1
        at_once = min(MAX_AT_ONCE, 2 * at_once)
    return end


def _is_dispatched(entry: StoredEntry) -> bool:
    """Readers get it."""
    return entry.marker_type is None and entry.num_messages > 0


def _backwards(ledgers: Sequence[Ledger], behind: Position, last: Position) -> Iterator[Position]:
    """The entries from the last one back to, not including, the one ``behind`` which they lie."""
    for ledger in reversed(ledgers):
        if ledger.ledger_id > last.ledger_id:
            continue
        newest = last.entry_id if ledger.ledger_id == last.ledger_id else ledger.entries - 1
        for entry_id in range(newest, -1, -1):
            position = Position(ledger.ledger_id, entry_id)
            if position <= behind:
                return
            yield position
