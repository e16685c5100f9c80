"""How long requests wait for work on a partition that Pulsar may not serve: they block the rest of their connection.

All callers wait until the same moment, a while after the work began, and not at all while such work keeps failing
that slowly. The work continues in the meantime, and a client that retries later finds it done.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from gateway.errors import KafkaError
from protocol.kafka.errors import ErrorCode

PATIENCE_S = 3.0

T = TypeVar("T")


class Patience:
    """The patience with one kind of work on one partition."""

    def __init__(self) -> None:
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
        end = self._began_at + (0 if self._exhausted else PATIENCE_S)
        await asyncio.wait([task], timeout=max(0, end - asyncio.get_running_loop().time()))
        if not task.done() or task.cancelled():
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "Pulsar does not serve the partition at the moment")
        return task.result()
