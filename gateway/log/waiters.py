"""The fetches that wait for a log to move, and for whose sake it looks for what others write."""

from __future__ import annotations

import asyncio
from typing import Protocol

QUIET_S = 0.01
"""Consumers wait and nothing of ours was written for so long: look for what others write."""


class Waiter(Protocol):
    """A parked fetch."""

    def log_moved(self) -> None: ...


class WatchedLog(Protocol):
    """The partition log, as its waiters know it."""

    @property
    def closed(self) -> bool: ...

    def wants_entries(self) -> bool: ...

    def follow(self) -> None: ...


class Waiters:
    """False when there are none."""

    def __init__(self, log: WatchedLog) -> None:
        self._log = log
        self._waiting: set[Waiter] = set()
        self._at_end: set[Waiter] = set()
        self._wake_scheduled = False
        self._quiet_timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def at_end(self) -> bool:
        """Somebody waits for what is not written yet; others wait for older data."""
        return bool(self._at_end)

    def add(self, waiter: Waiter, *, at_end: bool) -> None:
        self._waiting.add(waiter)
        if at_end:
            self._at_end.add(waiter)
            self._watch()

    def discard(self, waiter: Waiter) -> None:
        self._waiting.discard(waiter)
        self._at_end.discard(waiter)

    def appended(self) -> None:
        """The log has grown, by whomever."""
        if self._waiting:
            self.wake()
        if self._at_end:
            self._watch()

    def wake(self) -> None:
        """Once for all that happens in this turn of the event loop."""
        if self._waiting and not self._wake_scheduled:
            self._wake_scheduled = True
            asyncio.get_running_loop().call_soon(self._wake_now)

    def stop_watching(self) -> None:
        if self._quiet_timer is not None:
            self._quiet_timer.cancel()

    def _wake_now(self) -> None:
        self._wake_scheduled = False
        for waiter in tuple(self._waiting):
            waiter.log_moved()

    def _watch(self) -> None:
        if self._quiet_timer is None and not self._log.closed:
            self._quiet_timer = asyncio.get_running_loop().call_later(QUIET_S, self._quiet)

    def _quiet(self) -> None:
        self._quiet_timer = None
        if self._log.wants_entries():
            self._log.follow()
        elif self._at_end:
            self._watch()
