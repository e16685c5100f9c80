"""Work that many callers need at the same time, and that one run does for all of them."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.background import run_shared
from gateway.errors import KafkaError
from protocol.kafka.errors import ErrorCode

Result = TypeVar("Result")


async def outcome_of(task: asyncio.Future[Result]) -> Result:
    """Wait for work that is also done for others, and that continues if this caller is cancelled.

    Raises what the work raises. Raises KafkaError NOT_LEADER_OR_FOLLOWER if the work is cancelled, but not the
    caller: then its log was closed.
    """
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        waiting = asyncio.current_task()
        if not task.cancelled() or (waiting is not None and waiting.cancelling()):
            raise
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the log was closed") from None


class SharedRun:
    """Each caller gets a run that begins after its call. All who call before the run begins share it, and its error."""

    __slots__ = ("_covered_s", "_next", "_running", "_work")

    def __init__(self, work: Callable[[], Awaitable[object]]) -> None:
        self._work = work
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None
        self._covered_s = -math.inf

    def covers(self, moment_s: float) -> bool:
        """Whether a run that began after that moment (monotonic clock) has succeeded."""
        return self._covered_s > moment_s

    async def wait(self) -> None:
        """Wait for a run that begins after this call. Raises what the work raises."""
        await outcome_of(self._next or self._begin())

    def start(self) -> None:
        """Begin a run that nobody waits for, unless there is one already."""
        if self._next is None and (self._running is None or self._running.done()):
            self._begin()

    def cancel(self) -> None:
        for task in (self._running, self._next):
            if task is not None:
                task.cancel()

    def _begin(self) -> asyncio.Task[None]:
        self._next = run_shared("shared run", self._run(self._running))
        return self._next

    async def _run(self, previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            await asyncio.wait([previous])
        self._running, self._next = self._next, None
        began_s = time.monotonic()
        await self._work()
        self._covered_s = began_s
