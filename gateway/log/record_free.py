"""Ranges of a log in which a search found no records, so that no search has to read them again."""

from __future__ import annotations

MAX_RANGES = 64
"""The number of ranges that one log remembers: the latest ones."""


class RecordFree:
    """The contents of a log never change: a range without records stays one."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}

    def learn(self, offset: int, end: int) -> None:
        """No record has an offset from ``offset`` up to, not including, ``end``."""
        self._ends[offset] = max(end, self._ends.pop(offset, end))
        if len(self._ends) > MAX_RANGES:
            del self._ends[next(iter(self._ends))]

    def end_of(self, offset: int) -> int:
        """The end of the range that begins at ``offset``; ``offset`` itself if no range is known."""
        return self._ends.get(offset, offset)
