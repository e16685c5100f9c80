"""Moves a subscription in the other clusters of a replicated namespace (PIP-33): an acknowledgement alone does not.

Brokers write snapshots into a replicated topic about once a second, as marker entries: up to where the replicas
agree. A broker uses a snapshot for a subscription after dispatching it, and informs the other clusters as soon as
the subscription has acknowledged up to there. A mirrored subscription never reads. Therefore only the newest
snapshot before its new position is dispatched to it: before the acknowledgement, the cursor is moved to right
before the snapshot, and one permit is sent. Clients never see markers; the admin API does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gateway.log.reading.entry_lookup import EntryLookup
from gateway.pulsar.admin.topics import StoredEntry
from gateway.pulsar.position import Position
from gateway.pulsar.subscription import Subscription

SNAPSHOT = 12
"""Marker type of Pulsar's `REPLICATED_SUBSCRIPTION_SNAPSHOT`."""
MAX_LOOK_BACK = 1_024
"""The limit of entries. If more are written between two snapshots, groups may move in other clusters less often."""
MAX_LOOK_AHEAD = 64
ENTRIES_AT_ONCE = 16
ENTRIES_AHEAD = 4
"""Most often there is one marker, or none."""
DISPATCH_S = 0.25
"""The snapshot may be the last entry: then no message follows that shows that it was dispatched."""
MAX_TOPICS = 5_000


class Reach(NamedTuple):
    """The last marker directly after an entry, or the entry itself if no marker follows; whether the log ends there."""

    position: Position
    at_end: bool


class Snapshots:
    """Methods raise PulsarError and TimeoutError."""

    def __init__(self, entries: EntryLookup) -> None:
        self._lookup = entries
        self._newest: dict[str, Position] = {}
        """The newest snapshot found, by topic."""

    async def reach(self, subscription: Subscription, position: Position) -> Reach:
        """The position of a group that has read the entry at ``position``: markers do not have to be read.

        Measured on 4.0.7: the last message that brokers return is the last one that is not a marker.
        """
        topic, last = subscription.topic, await subscription.last_position()
        if position < last:
            return Reach(await self._before_next_message(topic, position, last), False)
        end = (await self._lookup.admin.topics.internal_stats(topic)).last_confirmed
        is_held_back = position < end and await self._is_held_back(topic, end)
        # Requested again: entries written before `end` was answered, or held back until then, are included now.
        if position < await subscription.last_position():
            return Reach(position, False)
        if is_held_back:  # not only markers follow
            return Reach(await self._before_next_message(topic, position, end), True)
        return Reach(max(position, end), True)

    async def _is_held_back(self, topic: str, position: Position) -> bool:
        entry = await self._lookup.entry(topic, position)
        return entry is not None and entry.is_held_back

    async def _before_next_message(self, topic: str, position: Position, last: Position) -> Position:
        start = position.entry_id + 1
        end = start + MAX_LOOK_AHEAD
        if last.ledger_id == position.ledger_id:
            end = min(end, last.entry_id)
        for first in range(start, end, ENTRIES_AHEAD):
            numbers = range(first, min(first + ENTRIES_AHEAD, end))
            for entry in await self._entries(topic, position.ledger_id, numbers):
                if entry is None or entry.marker_type is None:
                    return position
                position = entry.position
        return position

    async def newest(self, topic: str, position: Position, known: Position | None) -> Position | None:
        """The newest snapshot at or before ``position``. Entries before ``known`` were checked in an earlier call."""
        floor = max(known or position._replace(entry_id=-1), self._newest.get(topic, Position(-1, -1)))
        lowest = floor.entry_id if floor.ledger_id == position.ledger_id else -1
        lowest = max(lowest, position.entry_id - MAX_LOOK_BACK)
        for end in range(position.entry_id, lowest, -ENTRIES_AT_ONCE):
            numbers = range(end, max(lowest, end - ENTRIES_AT_ONCE), -1)
            for entry in await self._entries(topic, position.ledger_id, numbers):
                if entry is not None and entry.marker_type == SNAPSHOT:
                    return self._remember(topic, entry.position)
        newest = self._newest.get(topic)
        return newest if newest is not None and newest <= position else None

    def _remember(self, topic: str, snapshot: Position) -> Position:
        newest = self._newest.pop(topic, snapshot)
        if len(self._newest) >= MAX_TOPICS:
            self._newest.pop(next(iter(self._newest)))
        self._newest[topic] = max(newest, snapshot)
        return snapshot

    async def _entries(self, topic: str, ledger_id: int, numbers: Iterable[int]) -> list[StoredEntry | None]:
        positions = (Position(ledger_id, number) for number in numbers)
        return await asyncio.gather(*(self._lookup.entry(topic, position) for position in positions))


async def dispatch_snapshot(subscription: Subscription, snapshot: Position, properties: Mapping[str, int]) -> None:
    """Make the broker use a snapshot that the subscription has not acknowledged. Raises PulsarError."""
    await subscription.ack_cumulative(snapshot._replace(entry_id=snapshot.entry_id - 1), properties)
    await subscription.dispatch(DISPATCH_S)
