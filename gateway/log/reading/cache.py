"""The tails of all open logs, in memory within one byte budget; the oldest entries are evicted first."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque

from gateway.log.entries.log_entry import NO_LIMIT, LogEntry, Slice, bytes_before, collect
from gateway.observability.metrics import Tally
from gateway.pulsar.position import Position

ENTRY_OVERHEAD_BYTES = 750
"""The memory that an entry needs besides its data: measured by a test."""
_COMPACT_AFTER = 512


class TailCache:
    """The byte budget, and the order in which entries arrived."""

    def __init__(self, budget_bytes: int, gauge: Tally) -> None:
        self._budget_bytes = budget_bytes
        self._gauge = gauge
        self._order: deque[tuple[Run, int]] = deque()
        self._forgotten = 0
        """The number of entries in the order whose tail has dropped them."""
        self.used_bytes = 0

    def admit(self, run: Run, size_bytes: int) -> None:
        """Account for an entry that was just added to the run's tail, and evict the oldest entries above the budget."""
        self._order.append((run, size_bytes))
        self.used_bytes += size_bytes
        while self.used_bytes > self._budget_bytes and self._order:
            self._evict()
        self._gauge.value = self.used_bytes

    def _evict(self) -> None:
        oldest, freed = self._order.popleft()
        if oldest.tail is None:
            self._forgotten -= 1
        else:
            oldest.tail.drop_first()
            self.used_bytes -= freed

    def forget(self, run: Run, entries: int, size_bytes: int) -> None:
        """The tail has dropped all entries of the run that were not evicted: this number of entries and bytes."""
        run.tail = None
        self.used_bytes -= size_bytes
        self._gauge.value = self.used_bytes
        self._forgotten += entries
        if self._forgotten > _COMPACT_AFTER and self._forgotten * 2 > len(self._order):
            self._order = deque(admitted for admitted in self._order if admitted[0].tail is not None)
            self._forgotten = 0


class Run:
    """The entries that were added to a tail since it was last cleared."""

    __slots__ = ("tail",)

    def __init__(self, tail: LogTail) -> None:
        self.tail: LogTail | None = tail
        """None once the run is forgotten: a closed log must not stay in memory until its entries would be evicted."""


class LogTail:
    """The newest entries of one log, without a gap."""

    __slots__ = ("_bases", "_bytes_before", "_cache", "_entries", "_head", "_run", "_total_bytes")

    def __init__(self, cache: TailCache) -> None:
        self._cache = cache
        self._entries: list[LogEntry] = []
        self._bases: list[int] = []
        self._bytes_before: list[int] = []
        """For each entry, the total size of all entries ever added before it."""
        self._total_bytes = 0
        self._head = 0
        self._run = Run(self)

    @property
    def start_offset(self) -> int | None:
        """The first offset in memory; None if there is none."""
        return self._entries[self._head].base_offset if self._head < len(self._entries) else None

    def append(self, entry: LogEntry) -> None:
        """Add the next entry of the log; the caller calls ``clear`` first if the entry does not follow the last one."""
        self._entries.append(entry)
        self._bases.append(entry.base_offset)
        self._bytes_before.append(self._total_bytes)
        self._total_bytes += entry.size_bytes
        self._cache.admit(self._run, entry.size_bytes + ENTRY_OVERHEAD_BYTES)

    def clear(self) -> None:
        """Drop all entries."""
        left = len(self._entries) - self._head
        if left:
            data_bytes = self._total_bytes - self._bytes_before[self._head]
            self._cache.forget(self._run, left, data_bytes + left * ENTRY_OVERHEAD_BYTES)
            self._run = Run(self)
        self._entries.clear()
        self._bases.clear()
        self._bytes_before.clear()
        self._head = 0

    def drop_first(self) -> None:
        """Evict the oldest entry."""
        self._entries[self._head] = None  # type: ignore[call-overload]  # frees the data; the list shrinks in steps
        self._head += 1
        if self._head >= _COMPACT_AFTER and self._head * 2 >= len(self._entries):
            del self._entries[: self._head]
            del self._bases[: self._head]
            del self._bytes_before[: self._head]
            self._head = 0

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool, before: int = NO_LIMIT) -> Slice | None:
        """The batches from ``offset`` to ``before``; None if the first offset is not in memory."""
        first = self._first_behind(offset)
        if first is None:
            return None
        return collect(self._entries, first, offset, max_bytes, at_least_one=at_least_one, before=before)

    def available_bytes(self, offset: int, before: int = NO_LIMIT) -> int:
        """The size of the batches from ``offset`` to ``before``; 0 if the first offset is not in memory."""
        first = self._first_behind(offset)
        if first is None or first == len(self._entries) or before <= offset:
            return 0
        if before >= self._entries[-1].next_offset:
            return self._total_bytes - self._bytes_before[first]
        last = bisect_left(self._bases, before, lo=self._head) - 1
        return self._bytes_before[last] + bytes_before(self._entries[last], before) - self._bytes_before[first]

    def _first_behind(self, offset: int) -> int | None:
        """The list index of the first entry that ends after ``offset``; None if that offset is not in memory."""
        start = self.start_offset
        if start is None or offset < start:
            return None
        first = bisect_right(self._bases, offset, lo=self._head) - 1
        return first if self._entries[first].next_offset > offset else first + 1

    def position_before(self, offset: int) -> Position | None:
        """The position of the last entry that ends at or before ``offset``; None if that entry is not in memory."""
        at = bisect_right(self._bases, offset, lo=self._head) - 1
        if at >= self._head and self._entries[at].next_offset > offset:
            at -= 1
        elif at == len(self._entries) - 1 and at >= self._head and self._entries[at].next_offset < offset:
            return None  # later entries may exist in between
        return self._entries[at].position if at >= self._head else None
