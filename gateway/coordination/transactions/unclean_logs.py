"""Logs that were closed as idle before they were clean: what was too young or undecided is cleaned later, though nobody
reads or writes there any more.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import NamedTuple

Key = tuple[str, int]
OPEN_AFTER_S, MAX_OPEN_AFTER_S = 600.0, 3_600.0
"""Each opening may be in vain, so the pause doubles. What is too young needs the rest of its time at least."""


class _Closed(NamedTuple):
    at_s: float
    pause_s: float


class UncleanLogs:
    """When which of them is opened again, by the monotonic clock."""

    def __init__(self) -> None:
        self._closed: dict[Key, _Closed] = {}
        self._opened: dict[Key, float] = {}
        """The last pause of those that were opened again, and are not clean yet."""

    def closed(self, key: Key, young_s: float) -> None:
        """The log is not open any more. Its last records will be old enough after ``young_s``."""
        pause_s = min(MAX_OPEN_AFTER_S, 2 * self._opened.pop(key, OPEN_AFTER_S / 2))
        self._closed[key] = _Closed(time.monotonic() + max(pause_s, young_s), pause_s)

    def due(self, are_open: Collection[Key]) -> Iterator[Key]:
        """Those that have to be opened now. Those that others have opened are forgotten."""
        now_s = time.monotonic()
        for key, closed in [*self._closed.items()]:
            if key in are_open or now_s >= closed.at_s:
                del self._closed[key]
                self._opened[key] = closed.pause_s
                if key not in are_open:
                    yield key

    def forget(self, key: Key) -> None:
        """It is clean, or not cleaned here any more. The next pause is short again."""
        self._opened.pop(key, None)
