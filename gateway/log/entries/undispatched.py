"""Entries that brokers do not dispatch to readers: a reader that expects them up to the log's end would wait forever.

These are markers, entries that count no messages, and messages of aborted native transactions. Brokers write some, and
any producer may. They hold no records that count, but mostly have offsets. Measured on Pulsar 4.0.7: a broker reports
such an entry as the last one, unless it wrote it itself, or it was aborted.

Where the admin API cannot return one of them, a reader shows whether brokers dispatch any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import structlog

from gateway.log.entries.silent_reader import reader_gets_none
from gateway.log.entries.stored_entries import ANSWER_S, NotReturnedError, end_behind, stored_entry
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.topics import Ledger, StoredEntry
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position

SILENT_S = 1.0
"""Readers get entries within milliseconds; after this time, shorter than `PATIENCE_S`, the admin API is asked."""
MAX_AT_ONCE = 16
"""The maximum of concurrent requests. The first round has only one: mostly the last entry is merely late."""

log = structlog.get_logger()


class _Found(NamedTuple):
    undispatched: bool
    """There are entries, and brokers dispatch none of them."""
    end: int | None = None
    """The offset after them; None also if none of them has an index."""
    dispatched: bool = False
    """Brokers dispatch one of them."""


async def undispatched_end(
    client: PulsarClient, admin: AdminClient, topic: str, behind: Position, last: Position
) -> int | None:
    """The offset after the last entry, if brokers dispatch none of the entries after ``behind``; None if they do.

    Also None if that cannot be found out.
    """
    try:
        async with asyncio.timeout(ANSWER_S):
            ledgers = (await admin.topics.internal_stats(topic)).ledgers
        try:
            found = await _look_at(admin, topic, backwards(ledgers, behind, last))
        except NotReturnedError:
            found = _Found(undispatched=await reader_gets_none(client, admin, topic, behind, last))
        if not found.undispatched or found.end is not None:
            return found.end
        async with asyncio.timeout(ANSWER_S):
            return await end_behind(admin, topic, last)
    except (PulsarError, TimeoutError) as error:
        log.info("cannot find out why no entry arrives", topic=topic, last=last, error=str(error))
        return None


async def none_is_dispatched(
    client: PulsarClient, admin: AdminClient, topic: str, ledgers: Sequence[Ledger], behind: Position, last: Position
) -> bool:
    """Whether readers get none of the entries after ``behind``. False also if that is not known. Raises PulsarError."""
    try:
        return not (await _look_at(admin, topic, backwards(ledgers, behind, last))).dispatched
    except NotReturnedError:
        return await reader_gets_none(client, admin, topic, behind, last)


async def _look_at(admin: AdminClient, topic: str, left: Iterator[Position]) -> _Found:
    seen, end = False, None
    at_once = 1
    while positions := [*islice(left, at_once)]:
        found = await asyncio.gather(*(stored_entry(admin, topic, position) for position in positions))
        for entry in found:
            if entry is None:
                continue
            if _is_dispatched(entry):
                return _Found(undispatched=False, dispatched=True)
            seen = True
            if end is None and entry.index is not None:
                end = entry.index + 1
        at_once = min(MAX_AT_ONCE, 2 * at_once)
    return _Found(seen, end)


def _is_dispatched(entry: StoredEntry) -> bool:
    """Whether readers get the entry."""
    return entry.marker_type is None and entry.num_messages > 0 and not entry.is_aborted


def backwards(ledgers: Sequence[Ledger], behind: Position, last: Position) -> Iterator[Position]:
    """The positions from ``last`` back to, but not including, ``behind``."""
    for ledger in reversed(ledgers):
        if ledger.ledger_id > last.ledger_id:
            continue
        newest = last.entry_id if ledger.ledger_id == last.ledger_id else ledger.entries - 1
        for entry_id in range(newest, -1, -1):
            position = Position(ledger.ledger_id, entry_id)
            if position <= behind:
                return
            yield position
