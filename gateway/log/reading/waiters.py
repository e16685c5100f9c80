"""The delayed fetches that wait for a log to move; for them the log looks for entries of other writers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

QUIET_S = 0.01
"""When consumers wait and this gateway wrote nothing for this time, the log looks for entries of other writers."""


FEW = 32
"""This number of delayed fetches may be answered in one turn of the event loop, while all other clients wait."""


class Waiter(Protocol):
    """A delayed fetch."""

    def log_moved(self) -> None: ...


class Waiters:
    """The delayed fetches of one log. False when there are none."""

    def __init__(self, on_quiet: Callable[[], bool]) -> None:
        """``on_quiet`` is called when a fetch has waited at the end for a while; again if it returns False."""
        self._on_quiet = on_quiet
        self._waiting: dict[Waiter, int] = {}
        """With their offsets."""
        self._at_end: dict[Waiter, None] = {}  # an empty set takes 216 bytes
        self._wake_scheduled = False
        self._quiet_timer: asyncio.TimerHandle | None = None
        self._watches = True

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def are_few(self) -> bool:
        return len(self._waiting) <= FEW

    @property
    def at_end(self) -> bool:
        """Whether a fetch waits at the log's end; others wait for older data."""
        return bool(self._at_end)

    def wait_for(self, offset: int) -> bool:
        """Whether a fetch waits for data from this offset on."""
        return offset in self._waiting.values()

    def add(self, waiter: Waiter, offset: int, *, at_end: bool) -> None:
        self._waiting[waiter] = offset
        if at_end:
            self._at_end[waiter] = None
            self._watch()

    def discard(self, waiter: Waiter) -> None:
        self._waiting.pop(waiter, None)
        self._at_end.pop(waiter, None)

    def appended(self) -> None:
        """The log has grown, through this gateway or another writer."""
        if self._waiting:
            self.wake()
        if self._at_end:
            self._watch()

    def wake(self) -> None:
        """Wakes once for all changes in this turn of the event loop."""
        if self._waiting and not self._wake_scheduled:
            self._wake_scheduled = True
            asyncio.get_running_loop().call_soon(self._wake_now)

    def stop_watching(self) -> None:
        """The log is closed; waiting fetches can still be woken."""
        self._watches = False
        if self._quiet_timer is not None:
            self._quiet_timer.cancel()

    def _wake_now(self) -> None:
        self._wake_scheduled = False
        for waiter in tuple(self._waiting):
            waiter.log_moved()

    def _watch(self) -> None:
        if self._quiet_timer is None and self._watches:
            self._quiet_timer = asyncio.get_running_loop().call_later(QUIET_S, self._quiet)

    def _quiet(self) -> None:
        self._quiet_timer = None
        if not self._on_quiet() and self._at_end:
            self._watch()
