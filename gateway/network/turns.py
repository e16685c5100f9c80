"""Decides whose requests the event loop runs, so that a flood of one client, or of one cluster, blocks no others.

A connection runs requests for at most SLICE_S, then all others get their turn. The same bound holds for each of several
clusters: in one turn of the event loop all its connections together run requests for one slice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

SLICE_S = 0.005
"""A request that began within the slice may end after it."""


class Turns:
    """The turns of all connections. A cluster is identified by any number that is unique to it."""

    def __init__(self, *, by_cluster: bool, now_s: Callable[[], float] = perf_counter) -> None:
        """Without `by_cluster`, only single connections are bounded, not clusters."""
        self.now_s = now_s
        self._by_cluster = by_cluster
        self._used_s: dict[int, float] = {}
        """The seconds that each cluster has used in this turn of the event loop."""
        self._waiting: dict[int, deque[Callable[[], None]]] = {}
        self._next: asyncio.Handle | None = None

    def may_run(self, cluster: int) -> bool:
        """False: call `wait`, because requests of the cluster have used their slice, or already wait."""
        return not self._by_cluster or (cluster not in self._waiting and self._used_s.get(cluster, 0.0) < SLICE_S)

    def ran(self, cluster: int, seconds: float) -> None:
        """Count the time that requests of the cluster have taken."""
        if self._by_cluster:
            self._used_s[cluster] = self._used_s.get(cluster, 0.0) + seconds
            self._expect_next()

    def wait(self, cluster: int, run: Callable[[], None]) -> None:
        """`run` is called in one of the next turns, after everything that already waits for the same cluster."""
        self._waiting.setdefault(cluster, deque()).append(run)
        self._expect_next()

    def _expect_next(self) -> None:
        if self._next is None:
            self._next = asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        """Begin a turn of the event loop. Waiting requests come first, and then wait behind the others again."""
        self._next = None
        self._used_s.clear()
        if self._waiting:
            self._expect_next()
        for cluster, runs in tuple(self._waiting.items()):
            ends_s = self.now_s() + SLICE_S
            while runs and self.now_s() < ends_s:
                runs.popleft()()
            if not runs:
                del self._waiting[cluster]
