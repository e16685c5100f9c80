"""What others append moves a log's end: reading up to what the broker has, for those who have to know."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Protocol

from gateway.log.shared_run import SharedRun
from gateway.log.undispatched import SILENT_S
from gateway.pulsar.position import Position


class EndedLog(Protocol):
    """The partition log, as its end knows it."""

    def last_position(self) -> Position: ...

    async def pass_undispatched(self, last: Position) -> None: ...


class EndFollower(Protocol):
    """Reads what others append."""

    async def last_position(self) -> Position: ...

    def follow(self) -> None: ...

    def start_anew(self) -> None: ...


class EndRefresh:
    """One goal for all who wait; it only moves forward."""

    def __init__(
        self, log: EndedLog, follower: EndFollower, timeout_ms: int, asked_at: float = -math.inf
    ) -> None:
        """``asked_at``: when the broker was asked for the end with which the log was opened, by the monotonic clock."""
        self._log = log
        self._follower = follower
        self._timeout_ms = timeout_ms
        self._asked_at = asked_at
        self._target: Position | None = None
        self._reached: asyncio.Future[None] | None = None
        self._ahead = SharedRun(self.refresh)
        self._passing = SharedRun(self._pass_undispatched)

    def checked_within(self, seconds: float) -> bool:
        """All is known that the broker had so shortly ago."""
        return time.monotonic() - self._asked_at < seconds

    def refresh_ahead(self, at_most_every_s: float) -> None:
        """Do what ``refresh`` does, before somebody has to wait for it."""
        if not self.checked_within(at_most_every_s):
            self._ahead.start()

    async def refresh(self, *, at_most_every_s: float = 0) -> None:
        """Read up to what the broker has now. Raises PulsarError or TimeoutError."""
        if self.checked_within(at_most_every_s):
            return
        asked_at = time.monotonic()
        await self._read_to_end()
        self._asked_at = max(self._asked_at, asked_at)

    async def _read_to_end(self) -> None:
        last = await self._follower.last_position()
        if last <= self._log.last_position() or last.entry_id < 0:
            return
        reached = self._aim(last)
        self._follower.follow()
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                await self._wait(reached)
        except TimeoutError:
            self._follower.start_anew()
            raise

    async def _wait(self, reached: asyncio.Future[None]) -> None:
        while not reached.done():
            known = self._log.last_position()
            await asyncio.wait([reached], timeout=SILENT_S)
            if not reached.done() and self._log.last_position() == known:
                await self._passing.wait()
        reached.result()

    async def _pass_undispatched(self) -> None:
        if self._target is not None:
            await self._log.pass_undispatched(self._target)

    def _aim(self, last: Position) -> asyncio.Future[None]:
        """Completes when the log is known up to ``last``, or to what others aim at."""
        if self._target is None or last > self._target:
            self._target = last
        if self._reached is None:
            self._reached = asyncio.get_running_loop().create_future()
        return self._reached

    @property
    def wanted(self) -> bool:
        """Somebody waits for entries to be read."""
        return self._target is not None

    def known_up_to(self, position: Position) -> None:
        if self._target is not None and position >= self._target:
            reached, self._reached, self._target = self._reached, None, None
            if reached is not None and not reached.done():
                reached.set_result(None)

    def give_up(self, error: Exception) -> None:
        """No entry will be read any more."""
        reached, self._reached, self._target = self._reached, None, None
        if reached is not None and not reached.done():
            reached.set_exception(error)
            reached.exception()  # those who waited may be gone

    def close(self) -> None:
        self._ahead.cancel()
        self._passing.cancel()
