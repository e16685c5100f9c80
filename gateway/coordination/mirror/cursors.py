"""Cursors of Pulsar subscriptions that stand where Kafka groups do: moving them, and reading them back.

A group at an offset has acknowledged every entry that ends at or before it; an entry of ten records of which five are
consumed is unread. The offset itself goes with the acknowledgement, as property ``kafka.offset``. Measured on 4.0.7:
an acknowledgement behind the cursor is passed over without an error; a seek drops the properties; message TTL moves the
cursor and keeps them, Pulsar's own tools and replicated subscriptions move it and drop them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar
from urllib.parse import unquote_plus

from gateway.coordination.mirror.snapshots import Reach, Snapshots, dispatch_snapshot
from gateway.log.partition_log import PartitionLog
from gateway.log.reading.entry_lookup import EntryLookup
from gateway.log.reading.positions import SparseIndex, find_position
from gateway.pulsar.admin import AdminClient
from gateway.pulsar.admin_http import AdminError
from gateway.pulsar.admin_topics import InternalStats, Ledger
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position, first_index
from gateway.pulsar.subscription import Subscription

OFFSET_PROPERTY = "kafka.offset"
MAX_KNOWN_CURSORS = 50_000
MAX_KNOWN_ENDS = 5_000

K = TypeVar("K")
V = TypeVar("V")


class Cursor(NamedTuple):
    """What is acknowledged up to ``position``; ``offset`` is the group's, if the cursor carries one."""

    position: Position
    offset: int | None


class TopicCursors(NamedTuple):
    """The subscriptions of one topic by name, and its ledgers."""

    by_name: Mapping[str, Cursor]
    ledgers: tuple[Ledger, ...]


class _End(NamedTuple):
    """The last entry as Pulsar names it, where a cursor stands that has read all, and the offset behind."""

    last: Position
    position: Position
    offset: int


class Cursors:
    """Methods raise PulsarError, and TimeoutError where they read entries."""

    def __init__(self, client: PulsarClient, admin: AdminClient, *, replicated: bool) -> None:
        self._client = client
        self._admin = admin
        self._entries = EntryLookup(client, admin)
        self.replicated = replicated
        self._snapshots = Snapshots(self._entries) if replicated else None
        self._known: dict[tuple[str, str], Position] = {}
        """Where cursors were last put."""
        self._ends: dict[str, _End] = {}

    # Moving

    def forget(self) -> None:
        """Other gateways may have moved cursors since."""
        self._known = {}

    def knows(self, topic: str, name: str) -> bool:
        """Whether `move` can do without `found`."""
        return (topic, name) in self._known

    async def move(self, topic: str, name: str, offset: int, log: PartitionLog | None, found: Cursor | None) -> bool:
        """Have the subscription stand at ``offset``; it is made if need be.

        ``log`` is the topic's, if it is open. ``found`` is where Pulsar has the subscription, if it exists. False if
        other clusters cannot know of it yet: the end of the log is younger than the last snapshot.
        """
        key, remembered = (topic, name), self._known
        known = remembered.pop(key, None)
        if known is None and found is not None:
            if found.offset == offset:
                return True
            known = found.position
        position = None if log is None else log.reader.position_before(offset)
        subscription = await self._open(topic, name)
        try:
            if position is None:
                known_positions = None if log is None else log.reader.known_positions
                last = await subscription.last_position()
                position = await self._find_position_before(topic, offset, last, known_positions)
            reach = Reach(position, False)
            if self._snapshots is not None:
                reach = await self._snapshots.reach(subscription, position)
            if known is not None and reach.position < known:
                await subscription.seek(reach.position._replace(entry_id=reach.position.entry_id + 1))
                await subscription.close()
                subscription = await self._open(topic, name)
                known = reach.position
            properties = {OFFSET_PROPERTY: max(0, offset)}
            snapshot = None
            if self._snapshots is not None:
                snapshot = await self._snapshots.newest(topic, reach.position, known)
                if snapshot is not None and (known is None or snapshot > known):
                    await dispatch_snapshot(subscription, snapshot, properties)
            await subscription.ack_cumulative(reach.position, properties)
        finally:
            await subscription.close()
        _remember(remembered, key, reach.position, MAX_KNOWN_CURSORS)  # for nobody, if all was forgotten meanwhile
        return not reach.at_end or (snapshot is not None and snapshot > position)

    async def _open(self, topic: str, name: str) -> Subscription:
        return await self._client.open_subscription(topic, name, _ignore, replicated=self.replicated)

    async def _find_position_before(
        self, topic: str, offset: int, last: Position, known: SparseIndex | None
    ) -> Position:
        """Where the last entry lies that ends at or before ``offset``: before the first entry, if none does."""
        end = await self._end(topic, last)
        if offset >= end.offset:
            return end.position
        found = await find_position(self._entries, topic, offset, known)
        if found is None:
            return await self._begin(topic)
        entry = await self._entries.entry(topic, found)
        ends_before = entry is not None and entry.index is not None and entry.index < offset
        return found if ends_before else found._replace(entry_id=found.entry_id - 1)

    async def _end(self, topic: str, last: Position) -> _End:
        known = self._ends.pop(topic, None)
        if known is None or known.last != last:
            if last.entry_id < 0:  # nothing is stored
                known = _End(last, await self._begin(topic), 0)
            else:
                known = _End(last, last, await self._entries.end(topic, last))
        _remember(self._ends, topic, known, MAX_KNOWN_ENDS)
        return known

    async def _begin(self, topic: str) -> Position:
        ledgers = (await self._admin.topics.internal_stats(topic)).ledgers
        return Position(ledgers[0].ledger_id if ledgers else 0, -1)

    async def delete(self, topic: str, name: str) -> None:
        """Delete the subscription, unless somebody uses it (AdminError, status 412)."""
        self._known.pop((topic, name), None)
        try:
            await self._admin.topics.delete_subscription(topic, name)
        except AdminError as error:
            if not error.not_found:
                raise

    # Reading

    async def names(self, topic: str) -> frozenset[str]:
        """The durable subscriptions, as the metadata store has them: a topic that nobody uses is not loaded."""
        try:
            encoded = (await self._admin.topics.managed_ledger(topic)).cursors
        except AdminError as error:
            if error.status != 500:  # what 4.0.7 says of a partition that was never made
                raise
            return await self._names_if_loaded(topic)
        return frozenset(unquote_plus(name) for name in encoded)

    async def _names_if_loaded(self, topic: str) -> frozenset[str]:
        try:
            return frozenset((await self.read(topic)).by_name)
        except AdminError as error:
            if error.not_found:
                return frozenset()
            raise

    async def read(self, topic: str) -> TopicCursors:
        return _topic_cursors(await self._admin.topics.internal_stats(topic))

    async def offset_at(self, topic: str, cursors: TopicCursors, cursor: Cursor) -> int:
        """The offset of a group that stands at the cursor.

        That is the one that the cursor carries, unless the cursor has been moved on since.
        """
        behind = await self._offset_behind(topic, cursors, cursor.position)
        return behind if cursor.offset is None else max(behind, cursor.offset)

    async def _offset_behind(self, topic: str, cursors: TopicCursors, position: Position) -> int:
        """The offset behind an entry; behind one that is gone, that of the next which is still there."""
        if position.entry_id >= 0:
            entry = await self._entries.entry(topic, position)
            if entry is not None and entry.index is not None:
                return entry.index + 1
        for ledger in cursors.ledgers:
            if ledger.entries > 0 and (ledger.ledger_id, 0) > position:
                first = await self._entries.entry(topic, Position(ledger.ledger_id, 0))
                if first is not None and first.index is not None:
                    return first_index(first.index, first.num_messages)
        return await self._entries.end(topic, await self._client.last_position(topic))


def _topic_cursors(stats: InternalStats) -> TopicCursors:
    by_name = {}
    for encoded, cursor in stats.cursors.items():
        ledger_id, entry_id = cursor["markDeletePosition"].split(":")
        offset = (cursor.get("properties") or {}).get(OFFSET_PROPERTY)
        by_name[unquote_plus(encoded)] = Cursor(Position(int(ledger_id), int(entry_id)), offset)
    return TopicCursors(by_name, stats.ledgers)


def _remember(known: dict[K, V], key: K, value: V, most: int) -> None:
    """The oldest is forgotten for it."""
    if len(known) >= most:
        known.pop(next(iter(known)))
    known[key] = value


def _ignore(error: PulsarError) -> None:
    """The broker closes a consumer over a seek; after any other reason, the next request of it fails."""
