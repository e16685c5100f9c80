"""The tails of logs in memory, compared with plain lists."""

import tracemalloc

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.log.entries.log_entry import LogEntry, collect
from gateway.log.reading.cache import _COMPACT_AFTER, ENTRY_OVERHEAD_BYTES, LogTail, TailCache
from gateway.observability.metrics import Tally
from gateway.pulsar.position import Position
from tests.support.empty_batch import empty_batch

BUDGET_BYTES = 7_000


def gauge() -> Tally:
    return Tally()


def entry(base_offset: int, counts: list[int]) -> LogEntry:
    """One batch for each of ``counts``."""
    data, offset = bytearray(), base_offset
    for count in counts:
        data += empty_batch(offset, count)
        offset += count
    return LogEntry(Position(1, base_offset), base_offset, offset, data)


class CacheMachine(RuleBasedStateMachine):
    """Two logs share a budget; the model is a list of what was admitted, oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self.gauge = gauge()
        self.cache = TailCache(BUDGET_BYTES, self.gauge)
        self.tails = [LogTail(self.cache), LogTail(self.cache)]
        self.admitted: list[tuple[int, LogEntry]] = []
        """(log, entry), within the budget."""
        self.next_offsets = [0, 0]

    logs = st.integers(0, 1)

    @rule(log=logs, counts=st.lists(st.integers(1, 5), min_size=1, max_size=5), gap=st.sampled_from([0, 0, 0, 2]))
    def append(self, log: int, counts: list[int], gap: int) -> None:
        new = entry(self.next_offsets[log] + gap, counts)
        self.next_offsets[log] = new.next_offset
        self.tails[log].append(new)
        self.admitted.append((log, new))
        while sum(old.size_bytes + ENTRY_OVERHEAD_BYTES for _, old in self.admitted) > BUDGET_BYTES:
            self.admitted.pop(0)

    @rule(log=logs, batches=st.integers(8, 70))
    def append_large(self, log: int, batches: int) -> None:
        """Up to a size that exceeds the budget alone."""
        self.append(log, [1] * batches, 0)

    @rule(log=logs)
    def clear(self, log: int) -> None:
        self.tails[log].clear()
        self.admitted = [(owner, old) for owner, old in self.admitted if owner != log]

    def kept(self, log: int) -> list[LogEntry]:
        return [old for owner, old in self.admitted if owner == log]

    @invariant()
    def budget_holds(self) -> None:
        used_bytes = sum(old.size_bytes + ENTRY_OVERHEAD_BYTES for _, old in self.admitted)
        assert self.cache.used_bytes == used_bytes <= BUDGET_BYTES

    @invariant()
    def starts_where_the_model_starts(self) -> None:
        for log, tail in enumerate(self.tails):
            kept = self.kept(log)
            assert tail.start_offset == (kept[0].base_offset if kept else None)

    @precondition(lambda self: bool(self.admitted))
    @rule(log=logs, data=st.data(), max_bytes=st.integers(0, 600), at_least_one=st.booleans())
    def read(self, log: int, data: st.DataObject, max_bytes: int, at_least_one: bool) -> None:
        offset = data.draw(st.integers(0, self.next_offsets[log] + 1))
        kept = self.kept(log)
        found = self.tails[log].read(offset, max_bytes, at_least_one=at_least_one)
        if not kept or offset < kept[0].base_offset:
            assert found is None
            assert self.tails[log].available_bytes(offset) == 0
            return
        first = sum(old.next_offset <= offset for old in kept)
        expected = collect(kept, first, offset, max_bytes, at_least_one=at_least_one)
        assert found is not None
        assert [bytes(chunk) for chunk in found.chunks] == [bytes(chunk) for chunk in expected.chunks]
        assert found[1:] == expected[1:]

    @rule(log=logs, data=st.data())
    def available(self, log: int, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.next_offsets[log] + 1))
        kept = self.kept(log)
        if kept and offset >= kept[0].base_offset:
            there = sum(old.size_bytes for old in kept if old.next_offset > offset)
            assert self.tails[log].available_bytes(offset) == there

    @rule(log=logs, data=st.data())
    def position_before(self, log: int, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.next_offsets[log] + 1))
        kept = self.kept(log)
        before = [old.position for old in kept if old.next_offset <= offset]
        known = bool(before) and offset <= kept[-1].next_offset
        assert self.tails[log].position_before(offset) == (before[-1] if known else None)


CacheMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestCache = CacheMachine.TestCase


def test_long_evicted_entries_leave_the_lists() -> None:
    cache = TailCache(10 * (empty_batch(0, 1).__len__() + ENTRY_OVERHEAD_BYTES), gauge())
    tail = LogTail(cache)
    for offset in range(3 * _COMPACT_AFTER):
        tail.append(entry(offset, [1]))
    assert len(tail._entries) < 2 * _COMPACT_AFTER
    assert tail.start_offset == 3 * _COMPACT_AFTER - 10
    found = tail.read(3 * _COMPACT_AFTER - 5, 10_000, at_least_one=True)
    assert found is not None
    assert found.next_offset == 3 * _COMPACT_AFTER
    assert len(found.chunks) == 5


def test_a_log_that_is_closed_is_not_kept() -> None:
    """However little of the budget is used: thousands of topics may be created and deleted."""
    cache = TailCache(1 << 30, gauge())
    lasting = LogTail(cache)
    lasting.append(entry(0, [1]))
    tracemalloc.start()
    try:
        for rounds in range(2):
            if rounds == 1:
                before, _ = tracemalloc.get_traced_memory()
            for _ in range(5 * _COMPACT_AFTER):
                tail = LogTail(cache)
                tail.append(entry(0, [1]))
                tail.clear()
        grown_bytes = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown_bytes < 100 * _COMPACT_AFTER
    assert cache.used_bytes == empty_batch(0, 1).__len__() + ENTRY_OVERHEAD_BYTES
    assert lasting.start_offset == 0


def test_the_budget_is_that_of_memory() -> None:
    """With entries as they are produced: each is a view of its frame."""
    tracemalloc.start()
    try:
        cache = TailCache(1 << 30, gauge())
        tail = LogTail(cache)
        before, _ = tracemalloc.get_traced_memory()
        for number in range(10_000, 20_000):
            data = memoryview(bytearray(200))[:150]
            tail.append(LogEntry(Position(100_000, number), number, number + 1, data))
        taken_bytes = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.8 * cache.used_bytes < taken_bytes < 1.2 * cache.used_bytes
