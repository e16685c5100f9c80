"""Requests with very many items: a bounded number at the same time, in slices between which other work can run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from time import monotonic
from typing import TypeVar

SLICE_S = 0.005
"""The longest work for one request before other tasks get their turn."""
AT_ONCE = 64
"""The number of items of one request that are handled at the same time, unless the caller gives another number."""

T = TypeVar("T")
R = TypeVar("R")


class Slices:
    """For loops without an await of their own: call `await slices.pause()` in each round."""

    def __init__(self) -> None:
        self._end = monotonic() + SLICE_S
        self._resume: asyncio.Future[None] | None = None
        self._begins = False

    async def pause(self) -> None:
        """Return immediately, or in a later turn of the event loop. Many tasks may share one slice."""
        while monotonic() >= self._end:
            if self._begins:  # One task continues in each turn, even if other work has used up the slice.
                self._begins = False
                self._end = monotonic() + SLICE_S
                return
            if self._resume is None or self._resume.done():
                loop = asyncio.get_running_loop()
                self._resume = loop.create_future()
                loop.call_soon(self._begin, self._resume)
            await asyncio.shield(self._resume)

    def _begin(self, resume: asyncio.Future[None]) -> None:
        self._begins = True
        resume.set_result(None)


async def fan_out(work: Callable[[T], Awaitable[R]], items: Sequence[T], *, at_once: int = AT_ONCE) -> list[R]:
    """The results of `work` for all items, in their order. The first exception cancels the rest and is raised."""
    results: dict[int, R] = {}
    slices, numbers = Slices(), count()

    async def work_off() -> None:
        while (number := next(numbers)) < len(items):
            await slices.pause()
            results[number] = await work(items[number])

    if at_once == 1 or len(items) <= 1:
        await work_off()
    else:
        await _all_or_none([asyncio.create_task(work_off()) for _ in range(min(at_once, len(items)))])
    return [results[number] for number in range(len(items))]


async def _all_or_none(tasks: Sequence[asyncio.Task[None]]) -> None:
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
