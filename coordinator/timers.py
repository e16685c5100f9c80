"""Deadlines by key; the caller has the clock.

Heartbeats move a session's deadline later far more often than one expires, so a move only writes the dictionary: the
heap keeps the earlier entry, and puts it back where it belongs when its time comes.
"""

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

AT_ONCE = 100
"""Timers of one `tick`. What they start may take some tenths of a millisecond each."""

Key = TypeVar("Key", bound=Hashable)


class Timers(Generic[Key]):
    def __init__(self) -> None:
        self._deadlines: dict[Key, int] = {}
        self._queued_at: dict[Key, int] = {}
        self._heap: list[tuple[int, int, Key]] = []
        self._pushes = 0  # ties are broken by age, so keys need no order

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: Key) -> bool:
        """Whether it runs."""
        return key in self._deadlines

    def set(self, key: Key, deadline_ms: int) -> None:
        """Start the key's timer, or move it."""
        self._deadlines[key] = deadline_ms
        if key not in self._queued_at or deadline_ms < self._queued_at[key]:
            self._push(key, deadline_ms)

    def cancel(self, key: Key) -> None:
        self._deadlines.pop(key, None)

    def clear(self) -> None:
        self._deadlines.clear()
        self._queued_at.clear()
        self._heap.clear()

    def next_deadline_ms(self) -> int | None:
        """When to call `pop_due`; it may then find nothing due, because the deadline had moved."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> Iterator[Key]:
        """Remove and return the keys that are overdue, AT_ONCE at most: if there are more, the next deadline is past.
        """
        for _ in range(AT_ONCE):
            key = self.pop_due(now_ms)
            if key is None:
                return
            yield key

    def pop_due(self, now_ms: int) -> Key | None:
        """Remove and return the key that is longest overdue; None when none is."""
        while self._heap and self._heap[0][0] <= now_ms:
            queued_ms, _, key = heapq.heappop(self._heap)
            if self._queued_at.get(key) != queued_ms:
                continue  # an earlier entry for this key has been queued since
            del self._queued_at[key]
            deadline_ms = self._deadlines.get(key)
            if deadline_ms is None:
                continue
            if deadline_ms > now_ms:
                self._push(key, deadline_ms)
                continue
            del self._deadlines[key]
            return key
        return None

    def _push(self, key: Key, deadline_ms: int) -> None:
        self._pushes += 1
        self._queued_at[key] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, self._pushes, key))
