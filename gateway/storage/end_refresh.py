"""Waiting until a log is known up to an entry that the broker has named as the last one."""

from __future__ import annotations

import asyncio

from gateway.pulsar.position import Position


class EndRefresh:
    """One goal for all who wait; it only moves forward."""

    def __init__(self) -> None:
        self._target: Position | None = None
        self._reached: asyncio.Future[None] | None = None

    @property
    def wanted(self) -> bool:
        """Somebody waits for entries to be read."""
        return self._target is not None

    def aim(self, last: Position) -> asyncio.Future[None]:
        """Completes when the log is known up to ``last``, or to what others aim at."""
        if self._target is None or last > self._target:
            self._target = last
        if self._reached is None:
            self._reached = asyncio.get_running_loop().create_future()
        return self._reached

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
