"""Ranges of a log that hold no records, as whoever looked for some has found: nobody has to look through them again."""

from __future__ import annotations

from collections import OrderedDict

MAX_RANGES = 64
"""Of one log; those found last."""


class RecordFree:
    """What lies in a log never changes: a range without records stays one."""

    def __init__(self) -> None:
        self._ends: OrderedDict[int, int] = OrderedDict()

    def learn(self, offset: int, end: int) -> None:
        """No record lies from ``offset`` up to, not including, ``end``."""
        self._ends[offset] = max(end, self._ends.pop(offset, end))
        if len(self._ends) > MAX_RANGES:
            self._ends.popitem(last=False)

    def end_of(self, offset: int) -> int:
        """Behind the range that begins at ``offset``; the offset itself if none is known."""
        return self._ends.get(offset, offset)
