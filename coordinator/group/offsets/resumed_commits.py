"""Commits that have waited for the end of a transaction, and go on after it: in their order, and in slices.

There may be thousands, of thousands of offsets each. A commit that comes while others of its group are left waits
behind them: the last one counts.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from coordinator.slices import SliceCounter, Steps


class WaitingCommit(NamedTuple):
    group_id: str
    size: int
    """The number of its offsets."""
    go_on: Callable[[int], None]
    """Called with the current time. It may wait for the end of another transaction then."""


class ResumedCommits:
    def __init__(self, start: Callable[[Steps], None]) -> None:
        """`start` gets what is left after the first slice."""
        self._start = start
        self._left: deque[WaitingCommit] = deque()
        self._by_group: Counter[str] = Counter()
        """How many of a group are left."""
        self._is_running = False
        self._goes_on = False
        self._has_resigned = False

    def resign(self) -> None:
        """What is left goes on in slices. What comes later does so at once: nobody may take further steps."""
        self._has_resigned = True

    def wait(self, commit: WaitingCommit) -> bool:
        """Whether there are earlier ones of its group: then it goes on after them."""
        if self._goes_on or not self._is_running or commit.group_id not in self._by_group:
            return False
        self._add(commit)
        return True

    def resume(self, commits: Iterable[WaitingCommit], now_ms: int) -> None:
        for commit in commits:
            self._add(commit)
        if self._is_running:
            return
        self._is_running = True
        steps = self._steps(now_ms)
        for _ in steps:
            if not self._has_resigned:
                self._start(steps)
                return

    def _add(self, commit: WaitingCommit) -> None:
        self._left.append(commit)
        self._by_group[commit.group_id] += 1

    def _steps(self, now_ms: int) -> Steps:
        counter = SliceCounter()
        try:
            while self._left:
                commit = self._left.popleft()
                self._by_group[commit.group_id] -= 1
                if not self._by_group[commit.group_id]:
                    del self._by_group[commit.group_id]
                self._go_on(commit, now_ms)
                if counter.is_full(1 + commit.size):
                    yield
        finally:
            self._is_running = False

    def _go_on(self, commit: WaitingCommit, now_ms: int) -> None:
        self._goes_on = True
        try:
            commit.go_on(now_ms)
        finally:
            self._goes_on = False
