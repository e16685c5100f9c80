"""Cursors of the Pulsar subscriptions that mirror Kafka groups: moving them, and reading them back.

A group at an offset has acknowledged every entry that ends at or before it; an entry of ten records of which five
are consumed counts as unread. The acknowledgement carries the offset itself as property ``kafka.offset``. Measured
on 4.0.7: Pulsar ignores an acknowledgement before the cursor without an error. A seek drops the properties. Message
TTL moves the cursor and keeps them. Pulsar's own tools and replicated subscriptions move the cursor and drop them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar
from urllib.parse import unquote_plus

from gateway.coordination.mirror.snapshots import Reach, Snapshots, dispatch_snapshot
from gateway.log.partition_log import PartitionLog
from gateway.log.reading.entry_lookup import EntryLookup
from gateway.log.reading.positions import SparseIndex, find_position
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.admin.topics import PARTITION, InternalStats, Ledger
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
    """Entries up to ``position`` are acknowledged. ``offset`` is the group's, None if the cursor carries none."""

    position: Position
    offset: int | None


class TopicCursors(NamedTuple):
    """The subscriptions of one topic by name, and its ledgers."""

    by_name: Mapping[str, Cursor]
    ledgers: tuple[Ledger, ...]


class _End(NamedTuple):
    """The last entry as Pulsar names it, the position of a cursor that has read all, and the log's end offset."""

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
        """The positions to which this gateway moved cursors last."""
        self._ends: dict[str, _End] = {}

    # Moving

    def forget(self) -> None:
        """Other gateways may have moved cursors in the meantime."""
        self._known = {}

    def forget_topic(self, local_name: str) -> None:
        """The topic is being deleted. A new one of this name has other positions."""
        one, several = f"/{local_name}", f"/{local_name}{PARTITION}"
        gone = [key for key in self._known if several in key[0] or key[0].endswith(one)]
        for key in gone:
            del self._known[key]

    def knows(self, topic: str, name: str) -> bool:
        """Whether `move` does not need ``found``. Other clusters may have moved a replicated one since."""
        return not self.replicated and (topic, name) in self._known

    async def move(self, topic: str, name: str, offset: int, log: PartitionLog | None, found: Cursor | None) -> bool:
        """Move the subscription to ``offset``, and create it if necessary.

        ``log`` is the topic's log, if it is open. ``found`` is the cursor in Pulsar, if it exists. False if other
        clusters cannot get this position yet: the end of the log is newer than the last snapshot.
        """
        key, remembered = (topic, name), self._known
        known = remembered.pop(key, None)
        if found is not None:
            if known is None and found.offset == offset:
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
        _remember(remembered, key, reach.position, MAX_KNOWN_CURSORS)  # no effect after a `forget`
        return not reach.at_end or (snapshot is not None and snapshot > position)

    async def _open(self, topic: str, name: str) -> Subscription:
        return await self._client.open_subscription(topic, name, _ignore, replicated=self.replicated)

    async def _find_position_before(
        self, topic: str, offset: int, last: Position, known: SparseIndex | None
    ) -> Position:
        """Where the last entry is that ends at or before ``offset``; before the first entry if there is none."""
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
        if last.entry_id < 0:  # nothing is stored, perhaps in other ledgers than before: the topic may be made anew
            return _End(last, await self._begin(topic), 0)
        known = self._ends.pop(topic, None)
        if known is None or known.last != last:
            known = _End(last, last, await self._entries.end(topic, last))
        _remember(self._ends, topic, known, MAX_KNOWN_ENDS)
        return known

    async def _begin(self, topic: str) -> Position:
        ledgers = (await self._admin.topics.internal_stats(topic)).ledgers
        return Position(ledgers[0].ledger_id if ledgers else 0, -1)

    async def delete(self, topic: str, name: str) -> None:
        """Delete the subscription. Raises AdminError with status 412 if a consumer uses it."""
        self._known.pop((topic, name), None)
        try:
            await self._admin.topics.delete_subscription(topic, name)
        except AdminError as error:
            if not error.not_found:
                raise

    # Reading

    async def names(self, topic: str) -> frozenset[str]:
        """The durable subscriptions from the metadata store: this does not load a topic that nobody uses."""
        try:
            encoded = (await self._admin.topics.managed_ledger(topic)).cursors
        except AdminError as error:
            if error.status != 500:  # the answer of 4.0.7 for a partition that was never created
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
        """The offset of a group at the cursor's position.

        That is the offset that the cursor carries, unless the cursor was moved forward after that.
        """
        behind = await self._offset_behind(topic, cursors, cursor.position)
        return behind if cursor.offset is None else max(behind, cursor.offset)

    async def _offset_behind(self, topic: str, cursors: TopicCursors, position: Position) -> int:
        """The offset after an entry. If the entry was deleted, the offset of the next entry that exists."""
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
    """Removes the oldest entry if there is no room."""
    if len(known) >= most:
        known.pop(next(iter(known)))
    known[key] = value


def _ignore(error: PulsarError) -> None:
    """The broker closes a consumer after a seek. After any other reason, the consumer's next request fails."""
