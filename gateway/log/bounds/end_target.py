"""The position up to which a log has to be read because callers wait for it."""

from __future__ import annotations

import asyncio

from gateway.pulsar.position import Position


class EndTarget:
    """A target shared by all waiting callers; it only moves forward."""

    def __init__(self) -> None:
        self.position: Position | None = None
        """The target; None if no caller waits."""
        self._reached: asyncio.Future[None] | None = None

    def aim(self, last: Position) -> asyncio.Future[None]:
        """Completes when the log is known up to ``last``, or up to a later target of other callers."""
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

    def fail(self, error: Exception) -> None:
        """No more entries will be read: the waiting callers get the error."""
        reached, self._reached, self.position = self._reached, None, None
        if reached is not None and not reached.done():
            reached.set_exception(error)
            reached.exception()  # marks it as retrieved: the callers may have left
