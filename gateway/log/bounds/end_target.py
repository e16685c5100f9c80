"""How far a log has to be known because somebody waits for that."""

from __future__ import annotations

import asyncio

from gateway.pulsar.position import Position


class EndTarget:
    """One for all who wait; it only moves forward."""

    def __init__(self) -> None:
        self.position: Position | None = None
        """None if nobody waits."""
        self._reached: asyncio.Future[None] | None = None

    def aim(self, last: Position) -> asyncio.Future[None]:
        """Completes when the log is known up to ``last``, or to what others aim at."""
        if self.position is None or last > self.position:
            self.position = last
        if self._reached is None:
            self._reached = asyncio.get_running_loop().create_future()
        return self._reached

    def known_up_to(self, position: Position) -> None:
        if self.position is not None and position >= self.position:
            reached, self._reached, self.position = self._reached, None, None
            if reached is not None and not reached.done():
                reached.set_result(None)

    def give_up(self, error: Exception) -> None:
        """No entry will be read any more."""
        reached, self._reached, self.position = self._reached, None, None
        if reached is not None and not reached.done():
            reached.set_exception(error)
            reached.exception()  # those who waited may be gone
