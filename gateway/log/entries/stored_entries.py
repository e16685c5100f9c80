"""Entries as the admin API returns them, without their payload, and the offsets of those that it cannot return.

It returns an entry's properties in an HTTP header, so it fails if they have more than 8 KB; and it never answers for an
entry that the broker cannot decompress. If readers do not get such an entry either, its offset follows from the next
entry. For a log's last entry, Pulsar counts: with every change of a property beside the ledgers it writes there how
many messages the topic got.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.admin.topics import Ledger, StoredEntry
from gateway.pulsar.errors import RetriableError, ServiceNotReadyError
from gateway.pulsar.position import Position, first_index

ANSWER_S = 2.0
FAILED = 500
"""The HTTP status for an entry that the broker cannot return."""
PROPERTY = "kafka.log.counted"
"""The last entry when the messages were counted."""
MAX_FOLLOWING = 1_000
"""Entries without an index that are passed over: each costs a request, and any native producer may write many."""


class NotReturnedError(RetriableError):
    """The admin API fails to return an entry, or does not answer."""


async def stored_entry(admin: AdminClient, topic: str, position: Position) -> StoredEntry | None:
    """The entry at ``position``; None if there is none. Raises PulsarError."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await admin.topics.entry(topic, position)
    except TimeoutError:
        raise NotReturnedError(f"no answer for entry {position} of {topic}") from None
    except AdminError as error:
        if error.status != FAILED:
            raise
        raise NotReturnedError(str(error)) from error


async def undispatched_entry(admin: AdminClient, topic: str, position: Position) -> StoredEntry | None:
    """As ``stored_entry``, if brokers do not dispatch the entry: one that cannot be returned counts as one message."""
    try:
        return await stored_entry(admin, topic, position)
    except NotReturnedError:
        end = await end_at(admin, topic, position, None)
    return StoredEntry(position, end - 1 if end > 0 else None, 1)


async def end_at(admin: AdminClient, topic: str, position: Position, index: int | None) -> int:
    """The offset after the entry at ``position``, which has this index if it has one. Raises PulsarError.

    Brokers give no index to an entry that its producer sent as no message. Older entries may have none either.
    """
    end = await end_behind(admin, topic, position) if index is None else index + 1
    if end is None:
        raise ServiceNotReadyError(f"the end of {topic} is not known yet")
    return end


async def end_behind(admin: AdminClient, topic: str, position: Position) -> int | None:
    """The offset after an entry, by what follows it; None if that is not known, as while entries are written.

    Raises PulsarError.
    """
    ledgers = (await admin.topics.internal_stats(topic)).ledgers
    for _ in range(MAX_FOLLOWING):
        following = _following(ledgers, position)
        if following is None:
            return await _counted_end(admin, topic, position)
        entry = await stored_entry(admin, topic, following)
        if entry is None:
            return None
        if entry.index is not None:
            return first_index(entry.index, entry.num_messages)
        position = following
    return None


async def _counted_end(admin: AdminClient, topic: str, last: Position) -> int | None:
    written = f"{last.ledger_id}:{last.entry_id}"
    await admin.topics.put_properties(topic, {PROPERTY: written})
    properties = await admin.topics.managed_ledger_properties(topic)
    stats = await admin.topics.internal_stats(topic)
    # Another broker may return older properties. Entries that are being written, or were since, are counted too.
    if properties.get(PROPERTY) != written or stats.pending_adds > 0 or stats.last_confirmed != last:
        return None
    return int(properties.get("index", "-1")) + 1


def _following(ledgers: Sequence[Ledger], position: Position) -> Position | None:
    """The position of the next entry; None if there is none."""
    for ledger in ledgers:
        if ledger.ledger_id == position.ledger_id and position.entry_id + 1 < ledger.entries:
            return position._replace(entry_id=position.entry_id + 1)
        if ledger.ledger_id > position.ledger_id and ledger.entries > 0:
            return Position(ledger.ledger_id, 0)
    return None
