"""Clients' regular expressions (RE2) are compiled and matched in a thread, never on the event loop.

All expressions share one thread, and take turns in it: a costly one does not hold up the others, and the other threads
stay free for other work. A turn is counted in the thread's CPU time, because names differ: where RE2 does not have the
memory for its fast way, a name takes a hundred times as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import thread_time

from coordinator.topic_regex import InvalidRegexError, matcher

TURN_S = 0.005
"""After this time another expression has its turn, or the process can end."""
FREE_S = 1.0
PER_NAME_S = 50e-6
"""An expression may cost FREE_S, and this time for each name; ordinary ones take a fiftieth of it."""

_thread = ThreadPoolExecutor(1, "expressions")


class CostlyRegexError(InvalidRegexError):
    """The expression is valid, but it takes too long to match."""


class Expression:
    """An expression, and what it has cost; for one use of it."""

    def __init__(self, regex: str) -> None:
        self._regex = regex
        self._tried = 0
        self._spent_s = 0.0

    async def matching(self, names: Collection[str]) -> frozenset[str]:
        """The names that the expression matches as a whole. Raises InvalidRegexError.

        `names` must not change meanwhile. If the caller is cancelled, the work ends with the turn.
        """
        loop, left, found = asyncio.get_running_loop(), iter(names), set[str]()
        while not await loop.run_in_executor(_thread, self._turn, left, found):
            pass
        return frozenset(found)

    def _turn(self, left: Iterator[str], found: set[str]) -> bool:
        """Match names until the turn is over. Returns whether no name is left. Raises InvalidRegexError."""
        start = thread_time()
        matches, spent_s, is_done = matcher(self._regex), 0.0, True
        for name in left:
            if matches(name):
                found.add(name)
            self._tried += 1
            spent_s = thread_time() - start
            if spent_s >= TURN_S:
                is_done = False
                break
        self._spent_s += spent_s
        if self._spent_s > FREE_S + PER_NAME_S * self._tried:
            raise CostlyRegexError(f"it takes {self._spent_s / self._tried * 1e6:.0f} µs to match one name")
        return is_done
