"""Checks of passwords: each takes milliseconds of CPU, so they run in a few threads, and sites take turns.

A client that logs in again and again, with whatever success, delays others by one check. A site is an address, or a
network of IPv6 (`site_of`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from gateway.security.address_quotas import Site

T = TypeVar("T")
THREADS = 2


class PasswordChecks:
    """The checks of all listeners share the threads."""

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = ThreadPoolExecutor(threads, "passwords")
        self._free = threads
        self._waiting: OrderedDict[Site, dict[asyncio.Future[None], None]] = OrderedDict()
        """The site that comes first has its turn next. Each has its checks in the order in which they came."""

    async def run(self, site: Site, check: Callable[[], T]) -> T:
        """Call it in a thread when it is the site's turn. A check that has begun ends, even if nobody waits for it."""
        await self._turn(site)
        running = asyncio.get_running_loop().run_in_executor(self._threads, check)
        running.add_done_callback(self._ended)
        return await asyncio.shield(running)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _turn(self, site: Site) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(site, {})
        waiting[turn] = None
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()
            else:
                self._forget(site, turn)
            raise

    def _ended(self, check: asyncio.Future[Any]) -> None:
        if not check.cancelled():
            check.exception()  # possibly nobody waits for it
        self._release()

    def _release(self) -> None:
        """Give the thread to the next one, if any."""
        while self._waiting:
            site, waiting = next(iter(self._waiting.items()))
            turn = next(iter(waiting))
            self._forget(site, turn)
            if site in self._waiting:
                self._waiting.move_to_end(site)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _forget(self, site: Site, turn: asyncio.Future[None]) -> None:
        """It may be forgotten already."""
        waiting = self._waiting.get(site)
        if waiting is None:
            return
        waiting.pop(turn, None)
        if not waiting:
            del self._waiting[site]
