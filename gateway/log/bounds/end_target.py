"""The positions up to which a log has to be read because callers wait for it."""

from __future__ import annotations

import asyncio
from bisect import insort
from operator import itemgetter

from gateway.pulsar.position import Position


class EndTarget:
    """Each caller has a target of its own: while others write, later callers have later ones."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Position, asyncio.Future[None]]] = []
        """In the order of the positions."""

    @property
    def position(self) -> Position | None:
        """The farthest target; None if no caller waits."""
        return self._waiting[-1][0] if self._waiting else None

    def aim(self, last: Position) -> asyncio.Future[None]:
        """Completes when the log is known up to ``last``. A caller that leaves earlier cancels the future."""
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting = [each for each in self._waiting if not each[1].done()]
        insort(self._waiting, (last, reached), key=itemgetter(0))
        return reached

    def known_up_to(self, position: Position) -> None:
        while self._waiting and self._waiting[0][0] <= position:
            _, reached = self._waiting.pop(0)
            if not reached.done():
                reached.set_result(None)

    def fail(self, error: Exception) -> None:
        """No more entries will be read: the waiting callers get the error."""
        waiting, self._waiting = self._waiting, []
        for _, reached in waiting:
            if not reached.done():
                reached.set_exception(error)
                reached.exception()  # marks it as retrieved: the callers may have left
