"""Trying again what has failed: how long to wait between attempts, and when to give up."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class Backoff:
    """Pauses between attempts: each is twice as long as the one before it, up to the longest."""

    def __init__(self, first_s: float, longest_s: float | None = None, *, jitter: float = 0.0) -> None:
        """Without ``longest_s`` all are equally long. ``jitter`` is the share by which each differs from that."""
        self._first_s = first_s
        self._longest_s = first_s if longest_s is None else longest_s
        self._jitter = jitter
        self._next_s = first_s

    def reset(self) -> None:
        """An attempt went well: the next pause is the first again."""
        self._next_s = self._first_s

    def next_pause_s(self) -> float:
        """How long to wait now."""
        pause_s = min(self._next_s, self._longest_s)
        self._next_s = 2 * pause_s
        return pause_s * random.uniform(1 - self._jitter, 1 + self._jitter)

    async def pause(self) -> None:
        await asyncio.sleep(self.next_pause_s())


async def retried(
    attempt: Callable[[], Awaitable[T]],
    try_again: Callable[[Exception], bool],
    backoff: Backoff,
    within_s: float = math.inf,
) -> T:
    """The first result of ``attempt``.

    Raises what an attempt raises if ``try_again`` says no to it, or if the next attempt would begin after ``within_s``.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + within_s
    while True:
        try:
            return await attempt()
        except Exception as error:
            pause_s = backoff.next_pause_s()
            if not try_again(error) or loop.time() + pause_s > end_s:
                raise
        await asyncio.sleep(pause_s)
