"""From offsets to positions, on topics of any shape."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.log.entries.log_entry import LogEntry
from gateway.log.reading.entry_lookup import EntryLookup
from gateway.log.reading.positions import INDEX_EVERY_BYTES, SparseIndex, find_position
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.position import Position


class FakeAdmin:
    """Ledgers of entries; each entry has this number of messages."""

    def __init__(self, ledgers: list[list[int]], first_offset: int, gap: int) -> None:
        self.topics = self
        self.ledgers = ledgers
        self.found: dict[Position, tuple[int, int]] = {}
        self.probes = 0
        offset = first_offset
        for number, counts in enumerate(ledgers):
            for entry_id, count in enumerate(counts):
                self.found[Position(10 + 3 * number, entry_id)] = offset, offset + count
                offset += count
            offset += gap
        self.end_offset = offset

    async def internal_stats(self, topic: str) -> Any:
        ledgers = [
            SimpleNamespace(ledger_id=10 + 3 * number, entries=len(counts))
            for number, counts in enumerate(self.ledgers)
        ]
        return SimpleNamespace(ledgers=ledgers)

    async def entry(self, topic: str, position: Position) -> Any:
        self.probes += 1
        if position not in self.found:
            return None
        base, next_offset = self.found[position]
        return SimpleNamespace(index=next_offset - 1, num_messages=next_offset - base)


@settings(max_examples=300, deadline=None)
@given(
    ledgers=st.lists(st.lists(st.integers(1, 100), max_size=40), min_size=1, max_size=6),
    first_offset=st.integers(0, 1_000),
    gap=st.integers(0, 3),
    data=st.data(),
)
async def test_the_entry_found_is_never_behind_the_offset(
    ledgers: list[list[int]], first_offset: int, gap: int, data: st.DataObject
) -> None:
    admin = FakeAdmin(ledgers, first_offset, gap)
    offset = data.draw(st.integers(max(0, first_offset - 5), admin.end_offset))
    lookup = EntryLookup(cast(PulsarClient, None), cast(AdminClient, SimpleNamespace(topics=admin)))
    index = SparseIndex()
    for at in data.draw(st.sets(st.sampled_from(list(admin.found)), max_size=6)) if admin.found else ():
        index.learn(LogEntry(at, *admin.found[at], bytes(INDEX_EVERY_BYTES)))
    found = await find_position(lookup, "topic", offset, index)
    holding = [at for at, (base, next_offset) in admin.found.items() if base <= offset < next_offset]
    if found is None:
        assert not holding
        assert all(base > offset for base, _ in admin.found.values())
        return
    base, _ = admin.found[found]
    assert base <= offset
    if holding:
        assert found == holding[0]
    assert admin.probes < 40


async def test_between_known_entries_a_probe_is_enough() -> None:
    admin = FakeAdmin([[150] * 10_000], 0, 0)
    lookup = EntryLookup(cast(PulsarClient, None), cast(AdminClient, SimpleNamespace(topics=admin)))
    index = SparseIndex()
    for entry_id in range(0, 10_000, 256):
        index.learn(LogEntry(Position(10, entry_id), 150 * entry_id, 150 * (entry_id + 1), bytes(INDEX_EVERY_BYTES)))
    assert await find_position(lookup, "topic", 150 * 5_000 + 7, index) == Position(10, 5_000)
    assert admin.probes == 1


def _entry(base_offset: int, size_bytes: int) -> LogEntry:
    return LogEntry(Position(1, base_offset), base_offset, base_offset + 1, bytes(size_bytes))


def test_the_index_keeps_an_entry_for_each_few_megabytes() -> None:
    index = SparseIndex()
    quarter = INDEX_EVERY_BYTES // 4
    for offset in range(12):
        index.learn(_entry(offset, quarter))
    assert index.before(0) == (0, Position(1, 0))
    assert index.before(3) == (0, Position(1, 0))
    assert index.before(4) == (4, Position(1, 4))
    assert index.before(100) == (8, Position(1, 8))


def test_the_index_stays_in_order_and_without_repeats() -> None:
    index = SparseIndex()
    for offset in (50, 10, 50, 30, 10):
        index.learn(_entry(offset, INDEX_EVERY_BYTES))
    assert [index.before(offset) for offset in (9, 10, 29, 30, 49, 50)] == [
        None, *[(at, Position(1, at)) for at in (10, 10, 30, 30, 50)],
    ]  # fmt: skip
