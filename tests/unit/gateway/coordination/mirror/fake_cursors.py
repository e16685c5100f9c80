"""A Pulsar topic with its subscriptions, behind the calls of the client and the admin API that mirroring uses.

Cursors behave as measured on 4.0.7: see gateway/coordination/mirror/cursors.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote_plus

from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.admin.topics import InternalStats, Ledger, ManagedLedgerInfo, StoredEntry
from gateway.pulsar.position import Position


class FakeTopic:
    """`ledgers`: the message counts of each ledger's entries."""

    def __init__(self, ledgers: Sequence[Sequence[int]]) -> None:
        self.topics = self  # it is also its own AdminClient
        self.entries: dict[Position, StoredEntry] = {}
        self.ledgers = tuple(Ledger(3 * number, len(counts), 100) for number, counts in enumerate(ledgers, 1))
        index = -1
        for ledger, counts in zip(self.ledgers, ledgers, strict=True):
            for entry_id, count in enumerate(counts):
                index += count
                position = Position(ledger.ledger_id, entry_id)
                self.entries[position] = StoredEntry(position, index, count)
        self.end_offset = index + 1
        self.cursors: dict[str, tuple[Position, dict[str, int]]] = {}
        self.dispatched: list[tuple[str, Position]] = []
        """Subscriptions, and the first entry after their cursor each time."""

    def mark(self, position: Position, marker_type: int) -> None:
        """Make the entry a marker."""
        self.entries[position] = replace(self.entries[position], marker_type=marker_type)

    def hold_back(self, position: Position) -> None:
        """An open native transaction begins at the entry."""
        held_back = {
            each: replace(entry, is_held_back=True) for each, entry in self.entries.items() if each >= position
        }
        self.entries |= held_back

    def place(self, position: Position) -> int:
        """The number of entries up to a position. Positions at two sides of a ledger change may be the same place."""
        return sum(each <= position for each in self.entries)

    def backlog(self, name: str) -> int:
        return len(self.entries) - self.place(self.cursors[name][0])

    async def internal_stats(self, topic: str) -> InternalStats:
        cursors = {
            quote_plus(name): {
                "markDeletePosition": f"{position.ledger_id}:{position.entry_id}",
                "properties": properties,
            }
            for name, (position, properties) in self.cursors.items()
        }
        last = max(self.entries, default=Position(self.ledgers[0].ledger_id, -1))
        return InternalStats(self.ledgers, last, 0, len(self.entries), cursors, Ledger(-1, 0, 0))

    async def entry(self, topic: str, position: Position) -> StoredEntry | None:
        return self.entries.get(position)

    async def delete_subscription(self, topic: str, name: str) -> None:
        if self.cursors.pop(name, None) is None:
            raise AdminError(404, "not found")

    async def managed_ledger(self, topic: str) -> ManagedLedgerInfo:
        ids = frozenset(ledger.ledger_id for ledger in self.ledgers)
        return ManagedLedgerInfo(ids, frozenset(quote_plus(name) for name in self.cursors), {})

    async def managed_ledger_properties(self, topic: str) -> dict[str, str]:
        return {"index": str(self.end_offset - 1)}

    async def last_position(self, topic: str) -> Position:
        return Position(-1, -1)  # requested only where no entry is left

    async def open_subscription(
        self, topic: str, name: str, on_closed: Callable[[Any], None], *, replicated: bool
    ) -> FakeSubscription:
        self.cursors.setdefault(name, (Position(self.ledgers[0].ledger_id, -1), {}))
        return FakeSubscription(self, name)


class FakeSubscription:
    topic = "t"

    def __init__(self, topic: FakeTopic, name: str) -> None:
        self._topic, self._name = topic, name

    async def ack_cumulative(self, position: Position, properties: Mapping[str, int]) -> None:
        if position >= self._topic.cursors[self._name][0]:
            self._topic.cursors[self._name] = (position, dict(properties))

    async def dispatch(self, timeout_s: float) -> None:
        position = self._topic.cursors[self._name][0]
        self._topic.dispatched.append((self._name, position._replace(entry_id=position.entry_id + 1)))

    async def last_position(self) -> Position:
        entries = self._topic.entries.values()
        messages = [entry.position for entry in entries if entry.marker_type is None and not entry.is_held_back]
        return max(messages, default=Position(-1, -1))

    async def seek(self, position: Position) -> None:
        first = Position(self._topic.ledgers[0].ledger_id, -1)
        before = [each for each in self._topic.entries if each < position]
        self._topic.cursors[self._name] = (max(before, default=first), {})

    async def close(self) -> None:
        pass
