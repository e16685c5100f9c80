"""Limits how many logs, or how many producers, are opened at the same time: a busy Pulsar would answer none in time.

Logs that a write waits for come first. Of the others, those of the client come next that waits for the fewest: a client
reads nothing before all logs are open that it asked for, so of ten that wait for 300 logs each, one after the other is
served, not all of them at the end. And a client that asks for one log, first, does not wait for those with thousands.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager
from itertools import islice

HOLD_S = 1.0
"""After this time an opening gives its turn to the next one: it waits for Pulsar, and need not hold up others."""
HOLD_AGAIN_S = 0.05
"""The same for a log whose last opening was slow and failed: its clients retry again and again."""
NOBODY = "nobody"
"""No client, or one that does not matter: its turn comes when it has waited longest."""
OLDEST_EVERY = 4
"""One of so many turns is given to the opening that has waited longest: the others may never be few."""
CLIENTS_COMPARED = 64
"""Of those that have waited longest: the choice takes microseconds, however many clients wait."""


class _Patient:
    """The turns that wait, by client."""

    def __init__(self) -> None:
        self._of: dict[Hashable, OrderedDict[Hashable, asyncio.Future[None]]] = {}
        self._whose: OrderedDict[Hashable, Hashable] = OrderedDict()
        """The client of each turn. The turn that has waited longest comes first."""
        self._given = 0

    def add(self, key: Hashable, whose: Hashable, turn: asyncio.Future[None]) -> None:
        self._whose[key] = whose
        self._of.setdefault(whose, OrderedDict())[key] = turn

    def remove(self, key: Hashable) -> asyncio.Future[None] | None:
        if key not in self._whose:
            return None
        whose = self._whose.pop(key)
        turns = self._of[whose]
        turn = turns.pop(key)
        if not turns:
            del self._of[whose]
        return turn

    def share(self, key: Hashable, whose: Hashable) -> None:
        """Another client waits for this turn, too. It counts for the client that waits for fewer."""
        owner = self._whose.get(key, whose)
        if owner == whose or (owner != NOBODY and len(self._of.get(whose, ())) + 1 >= len(self._of[owner])):
            return
        turn = self._of[owner].pop(key)
        if not self._of[owner]:
            del self._of[owner]
        self._whose[key] = whose  # its place by age stays
        self._of.setdefault(whose, OrderedDict())[key] = turn

    def next(self) -> asyncio.Future[None] | None:
        """Mostly the first turn of the client that waits for the fewest; of several, of the one that waits longest."""
        self._given += 1
        fewest = None if self._given % OLDEST_EVERY == 0 else self._fewest()
        if fewest is not None:
            return self.remove(next(iter(fewest)))
        return self.remove(next(iter(self._whose))) if self._whose else None

    def _fewest(self) -> OrderedDict[Hashable, asyncio.Future[None]] | None:
        fewest: OrderedDict[Hashable, asyncio.Future[None]] | None = None
        for whose, turns in islice(self._of.items(), CLIENTS_COMPARED):
            if whose != NOBODY and (fewest is None or len(turns) < len(fewest)):
                fewest = turns
                if len(turns) == 1:
                    break
        return fewest


class OpeningTurns:
    """At most ``limit`` turns at the same time."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self.running = 0
        """The number of openings that have begun and not ended, whether or not they still hold their turn."""
        self._urgent: OrderedDict[Hashable, asyncio.Future[None]] = OrderedDict()
        self._patient = _Patient()

    def hasten(self, key: Hashable) -> None:
        """The turn that waits as ``key`` becomes urgent: it comes before all that are not."""
        turn = self._patient.remove(key)
        if turn is not None:
            self._urgent[key] = turn

    def share(self, key: Hashable, whose: Hashable) -> None:
        """The client ``whose`` waits for the turn that waits as ``key``, too."""
        self._patient.share(key, whose)

    @asynccontextmanager
    async def turn(
        self, key: Hashable, *, urgent: bool, hold_s: float | None = None, whose: Hashable = NOBODY
    ) -> AsyncGenerator[None, None]:
        """Wait for a turn, and hold it until the context ends, but at most for ``hold_s`` (default: HOLD_S).

        ``whose`` is the client that waits.
        """
        await self._take(key, whose, urgent=urgent)
        held = [True]

        def give_back() -> None:
            if held:
                held.clear()
                self._give_back()

        timer = asyncio.get_running_loop().call_later(HOLD_S if hold_s is None else hold_s, give_back)
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            timer.cancel()
            give_back()

    async def _take(self, key: Hashable, whose: Hashable, *, urgent: bool) -> None:
        if self._free > 0:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        if urgent:
            self._urgent[key] = turn
        else:
            self._patient.add(key, whose, turn)
        try:
            await turn
        except asyncio.CancelledError:
            self._urgent.pop(key, None)
            self._patient.remove(key)
            if turn.done() and not turn.cancelled():
                self._give_back()
            raise

    def _give_back(self) -> None:
        while (turn := self._next()) is not None:
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _next(self) -> asyncio.Future[None] | None:
        return self._urgent.popitem(last=False)[1] if self._urgent else self._patient.next()
