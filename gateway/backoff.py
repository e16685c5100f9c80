"""Retries of failed attempts: the pauses between them, and when to stop retrying."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class Backoff:
    """Pauses between attempts: each is twice as long as the previous one, up to the longest."""

    def __init__(self, first_s: float, longest_s: float | None = None, *, jitter: float = 0.0) -> None:
        """Without ``longest_s`` all have the same length. ``jitter`` is the share by which each is randomly longer or
        shorter."""
        self._first_s = first_s
        self._longest_s = first_s if longest_s is None else longest_s
        self._jitter = jitter
        self._next_s = first_s

    def reset(self) -> None:
        """An attempt succeeded: the next pause is the first again."""
        self._next_s = self._first_s

    def next_pause_s(self) -> float:
        """The length of the next pause."""
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
    """The result of the first successful ``attempt``.

    Raises the exception of an attempt if ``try_again`` returns False for it, or if the next attempt would begin after
    ``within_s``.
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
