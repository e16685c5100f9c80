"""Decides whose requests the event loop runs, so that a flood of one client, or of one cluster, blocks no others.

A connection runs requests for one slice, then all others get their turn. All connections together run requests for
TURN_S in one turn of the event loop. With several clusters, the connections of each one share one slice. Connections
that no cluster has admitted yet share one slice as well, for their TLS handshakes and logins.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Protocol

SLICE_S = 0.005
"""A request that began within the slice may end after it."""
TURN_S = 0.02
"""The time of all connections in one turn: leases, and what Pulsar sends, wait no longer for their requests."""
COUNTED_S = 0.002
"""The event loop is asked for the next turn when requests have taken this time: it would wake up for nothing before."""
CLUSTER_SLICE_S = 0.0003
"""The slice of a cluster, if there are several. The first request of another cluster waits for the turn to end."""
SHARED_SLICE_S = 0.0001
"""The same while several clusters ask. Until a record is acknowledged it waits for three turns or more: before it is
sent to Pulsar, for Pulsar's receipt, and for its answer. Short turns need more of the processor for the same work."""
SHARED_FOR_S = 0.02
"""Clusters share the event loop for so long after another one than before has asked. Most records are acknowledged
within this time."""
UNAUTHENTICATED = 0
"""Stands for the cluster of connections that no cluster has admitted yet."""


class HasCluster(Protocol):
    @property
    def cluster(self) -> int: ...


class Turns:
    """The turns of all connections. Any number but UNAUTHENTICATED identifies a cluster, if it is its own."""

    def __init__(self, *, by_cluster: bool, now_s: Callable[[], float] = perf_counter) -> None:
        """With `by_cluster`, the connections of each cluster are bounded together, otherwise those of all clients."""
        self.now_s = now_s
        self.by_cluster = by_cluster
        self._slice_s = CLUSTER_SLICE_S if by_cluster else SLICE_S
        self._latest = UNAUTHENTICATED
        """The cluster that was the last one to run requests."""
        self._shared_until_s = 0.0
        self._used_s: dict[int, float] = {}
        """The seconds that each cluster has used in this turn of the event loop."""
        self._all_s = 0.0
        """The same of all clients, without `by_cluster`."""
        self._waiting: dict[int, deque[Callable[[float], None]]] = {}
        self._next: asyncio.Handle | None = None

    def left_s(self, cluster: int) -> float:
        """How long requests of the cluster may run now. 0: call `wait`, because it has used its slice, or waits."""
        if not (self.by_cluster or cluster == UNAUTHENTICATED):
            return SLICE_S if self._all_s < TURN_S else 0.0
        if cluster in self._waiting:
            return 0.0
        return max(0.0, self._slice_s - self._used_s.get(cluster, 0.0))

    def ran(self, cluster: int, seconds: float) -> None:
        """Count the time that requests of the cluster have taken."""
        if not (self.by_cluster or cluster == UNAUTHENTICATED):
            self._ran_until(self._all_s + seconds)
            return
        self._used_s[cluster] = self._used_s.get(cluster, 0.0) + seconds
        if cluster not in (self._latest, UNAUTHENTICATED):
            self._share(cluster)
        self._expect_next()

    def _ran_until(self, all_s: float) -> None:
        self._all_s = all_s
        if all_s > COUNTED_S:
            self._expect_next()

    def wait(self, cluster: int, run: Callable[[float], None]) -> None:
        """`run` is called in one of the next turns, after everything that already waits for the same cluster.

        It gets the seconds that it may take, and has to call `ran`.
        """
        self._waiting.setdefault(cluster, deque()).append(run)
        self._expect_next()

    def run(self, connection: HasCluster, step: Callable[..., None], *arguments: object) -> None:
        """Run a step of a connection now, or when its cluster has its turn.

        A connection may get another cluster while it waits. The time of requests that the step runs is counted by them.
        """
        if not self.by_cluster and self._all_s < TURN_S:
            before_s = self.now_s() - self._all_s
            step(*arguments)
            self._ran_until(self.now_s() - before_s)
        elif self.left_s(connection.cluster) > 0:
            self._run_timed(connection.cluster, step, arguments)
        else:
            self.wait(connection.cluster, lambda _: self._run_timed(connection.cluster, step, arguments))

    def _run_timed(self, cluster: int, step: Callable[..., None], arguments: tuple[object, ...]) -> None:
        began_s, used_s = self.now_s(), self._used_s.get(cluster, 0.0)
        step(*arguments)
        took_s, counted_s = self.now_s() - began_s, self._used_s.get(cluster, 0.0) - used_s
        self.ran(cluster, max(0.0, took_s - counted_s))

    def _share(self, cluster: int) -> None:
        """Another cluster asks than before."""
        if self._latest != UNAUTHENTICATED:
            self._shared_until_s = self.now_s() + SHARED_FOR_S
            self._slice_s = min(self._slice_s, SHARED_SLICE_S)
        self._latest = cluster

    def _left_of_turn_s(self, cluster: int) -> float:
        """As `left_s`, for those that have waited."""
        if self.by_cluster or cluster == UNAUTHENTICATED:
            return self._slice_s - self._used_s.get(cluster, 0.0)
        return self.left_s(cluster)

    def _expect_next(self) -> None:
        if self._next is None:
            self._next = asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        """Begin a turn of the event loop. Waiting requests come first, and then wait behind the others again."""
        self._next = None
        self._used_s.clear()
        self._all_s = 0.0
        if self.by_cluster:
            is_shared = self.now_s() < self._shared_until_s
            # Each of many clusters that wait runs one request at least, so that nobody waits forever.
            self._slice_s = (SHARED_SLICE_S if is_shared else CLUSTER_SLICE_S) / max(1, len(self._waiting))
        if self._waiting:
            self._expect_next()
        for cluster, runs in tuple(self._waiting.items()):
            for _ in range(len(runs)):  # who has to wait again waits for the next turn
                left_s = self._left_of_turn_s(cluster)
                if left_s <= 0:
                    break
                runs.popleft()(left_s)
            if not runs:
                del self._waiting[cluster]
