"""Limits how many logs, or how many producers, are opened at the same time: a busy Pulsar would answer none in time.

Logs that a write waits for come first, the others in order.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager

HOLD_S = 1.0
"""After this time an opening gives its turn to the next one: it waits for Pulsar, and need not hold up others."""
HOLD_AGAIN_S = 0.05
"""The same for a log whose last opening was slow and failed: its clients retry again and again."""


class OpeningTurns:
    """At most ``limit`` turns at the same time."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._urgent: OrderedDict[Hashable, asyncio.Future[None]] = OrderedDict()
        self._patient: OrderedDict[Hashable, asyncio.Future[None]] = OrderedDict()

    def hasten(self, key: Hashable) -> None:
        """The turn that waits as ``key`` becomes urgent: it comes before all that are not."""
        turn = self._patient.pop(key, None)
        if turn is not None:
            self._urgent[key] = turn

    @asynccontextmanager
    async def turn(
        self, key: Hashable, *, urgent: bool, hold_s: float | None = None
    ) -> AsyncGenerator[None, None]:
        """Wait for a turn, and hold it until the context ends, but at most for ``hold_s`` (default: HOLD_S)."""
        await self._take(key, urgent=urgent)
        held = [True]

        def give_back() -> None:
            if held:
                held.clear()
                self._give_back()

        timer = asyncio.get_running_loop().call_later(HOLD_S if hold_s is None else hold_s, give_back)
        try:
            yield
        finally:
            timer.cancel()
            give_back()

    async def _take(self, key: Hashable, *, urgent: bool) -> None:
        if self._free > 0:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        (self._urgent if urgent else self._patient)[key] = turn
        try:
            await turn
        except asyncio.CancelledError:
            self._urgent.pop(key, None)
            self._patient.pop(key, None)
            if turn.done() and not turn.cancelled():
                self._give_back()
            raise

    def _give_back(self) -> None:
        for waiting in (self._urgent, self._patient):
            while waiting:
                _, turn = waiting.popitem(last=False)
                if not turn.done():
                    turn.set_result(None)
                    return
        self._free += 1
