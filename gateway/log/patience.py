"""How long requests wait for work on a partition that Pulsar may not serve: they block the rest of their connection.

All callers wait until the same moment, a while after the work began, and not at all while such work keeps failing
that slowly. The work continues in the meantime, and a client that retries later finds it done.

Where much such work runs at the same time, each takes longer, and callers wait longer: a refused batch that is not
idempotent may be overtaken by the client's next ones, as after any retriable error.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from gateway.errors import KafkaError
from gateway.log.opening_turns import OpeningTurns
from protocol.kafka.errors import ErrorCode

PATIENCE_S = 3.0
OTHERS_S = 0.05
"""So much longer for each other work that runs. A busy machine with two cores opens twenty logs a second."""
MAX_PATIENCE_S = 10.0
"""A third of the time that clients mostly wait for an answer: a broker may be away that has many partitions."""

T = TypeVar("T")


class Patience:
    """The patience with one kind of work on one partition, which has its turn in ``turns``."""

    def __init__(self, turns: OpeningTurns) -> None:
        self._turns = turns
        self._exhausted = False
        self._began_at = 0.0

    @property
    def exhausted(self) -> bool:
        """Whether the last run failed after PATIENCE_S or more."""
        return self._exhausted

    def begin(self) -> None:
        """A run of the work begins."""
        self._began_at = asyncio.get_running_loop().time()

    def end(self, task: asyncio.Task[T]) -> None:
        """The run has ended."""
        failed = not task.cancelled() and task.exception() is not None
        self._exhausted = failed and asyncio.get_running_loop().time() - self._began_at >= PATIENCE_S

    async def wait(self, task: asyncio.Task[T]) -> T:
        """The result of the run. Raises what the run raises; KafkaError NOT_LEADER_OR_FOLLOWER if it takes too long."""
        while not task.done() and (left_s := self._left_s()) > 0:
            await asyncio.wait([task], timeout=left_s)  # when it has ended, others may have begun
        if not task.done() or task.cancelled():
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "Pulsar does not serve the partition at the moment")
        return task.result()

    def _left_s(self) -> float:
        if self._exhausted:
            return 0.0
        others = max(0, self._turns.running - 1)
        wait_s = min(PATIENCE_S + others * OTHERS_S, MAX_PATIENCE_S)
        return self._began_at + wait_s - asyncio.get_running_loop().time()
