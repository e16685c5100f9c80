"""Where a log may have transactions that no flag shows: replication brings those of other clusters without it.

Gateways tag every entry of a log with transactions, and copies keep the tags. So the last entry mostly shows them. Two
kinds of entries do not: those of native producers, and those of a gateway that had not read the copies before them. The
latter say up to where their gateway knew that there are no transactions; what follows is read when the log is opened.

With several other clusters, a copy from one says nothing about those from another. Then all is read, once: a property
of the managed ledger says how far some gateway has read without finding any.
"""

from __future__ import annotations

from contextlib import aclosing
from itertools import islice
from typing import NamedTuple

from gateway.log.bounds.transaction_flag import (
    REPLICATORS,
    flagged_position,
    none_up_to,
    noted_none_up_to,
    shows_transactions,
)
from gateway.log.entries.entry_stream import NOTHING, read_entries
from gateway.log.entries.log_entry import holds_batches
from gateway.log.entries.undispatched import backwards
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.topics import ManagedLedgerInfo
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Entry

FROM_THE_START = NOTHING
LOOK_BACK_ENTRIES = 64
"""Of writers that say nothing, at the end of a log that is replicated: before them may be copied transactions."""


class Replication(NamedTuple):
    """What the end of a log shows of other clusters."""

    is_replicated: bool = False
    transactions_after: Position | None = None
    """Behind this entry may be transactions that no flag shows; None if there are none up to the last entry."""
    has_several_sources: bool = False
    """Several other clusters copy into the log, and what was read of it in vain is noted."""


async def find_replication(
    client: PulsarClient, admin: AdminClient, topic: str, held: ManagedLedgerInfo, last: Position, entry: Entry | None
) -> Replication:
    """``entry`` is the last one; None if readers do not get it. Raises PulsarError and TimeoutError."""
    if flagged_position(held.properties) is not None:
        return Replication(has_replicators(held))
    shown = Replication(is_replicated=True, has_several_sources=_count_replicators(held) > 1)
    known = None if entry is None else none_up_to(entry)
    if known is not None:
        is_whole = last == known._replace(entry_id=known.entry_id + 1)
        return shown._replace(transactions_after=None if is_whole else known)
    is_copy = entry is not None and entry.metadata.HasField("replicated_from")
    if not is_copy and not has_replicators(held):
        return Replication()
    if entry is not None and shows_transactions(entry):
        return shown._replace(transactions_after=FROM_THE_START)
    if shown.has_several_sources:
        noted = noted_none_up_to(held.properties)
        found = await _found_before(client, admin, topic, last, noted, FROM_THE_START)
    elif entry is not None and is_copy and holds_batches(entry):  # of a log without transactions
        found = None
    else:
        found = await _found_before(client, admin, topic, last, None, None)
    return shown._replace(transactions_after=found)


async def find_in_compacted(
    client: PulsarClient, admin: AdminClient, topic: str, held: ManagedLedgerInfo
) -> Replication:
    """The same, for a log of which only compacted entries are left."""
    last = await client.last_position(topic, read_compacted=True)
    if last.entry_id >= 0:
        reading = read_entries(client, topic, last, last, read_compacted=True, admin=admin)
        async with aclosing(reading) as entries:
            if any([shows_transactions(entry) async for entry in entries]):
                return Replication(is_replicated=True, transactions_after=FROM_THE_START)
    return Replication(has_replicators(held))


def has_replicators(held: ManagedLedgerInfo) -> bool:
    return _count_replicators(held) > 0


def _count_replicators(held: ManagedLedgerInfo) -> int:
    return sum(name.startswith(REPLICATORS) for name in held.cursors)


async def _found_before(
    client: PulsarClient, admin: AdminClient, topic: str, last: Position, known: Position | None,
    otherwise: Position | None,
) -> Position | None:  # fmt: skip
    """There are none up to ``known``. ``otherwise`` counts if nothing is known, and the last entries say nothing."""
    ledgers = (await admin.topics.internal_stats(topic)).ledgers
    *_, start = [last, *islice(backwards(ledgers, NOTHING, last), LOOK_BACK_ENTRIES + 1)]
    async with aclosing(read_entries(client, topic, start, last, admin=admin)) as entries:
        async for entry in entries:
            if shows_transactions(entry):
                return FROM_THE_START
            told = none_up_to(entry)
            if told is not None and (known is None or told > known):
                known = told
    if known is None:
        return otherwise
    return known if known < start else None
