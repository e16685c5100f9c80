"""Requests with very many items: a bounded number at the same time, in slices between which other work can run.

All such requests of one cluster share one slice in each turn of the event loop, and take turns: many of them at the
same time do not make a turn longer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from heapq import merge
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, TypeVar, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from gateway.busy_time import run_part

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparison

SLICE_S = 0.001
"""The longest work for the requests of one cluster before other tasks get their turn."""
AT_ONCE = 64
"""The number of items of one request that are handled at the same time, unless the caller gives another number."""
SORTED_AT_ONCE = 2_000
"""Strings that are sorted in one step: less than a millisecond. ACLs take a few of them."""
STEP_ITEMS = 100
"""Items for which little is done, such as to create a row of a response."""

T = TypeVar("T")
R = TypeVar("R")
Sortable = TypeVar("Sortable", bound="SupportsRichComparison")


cluster_at_work: ContextVar[int] = ContextVar("cluster_at_work", default=0)
"""The cluster that a task works for: any number that is unique to it."""


class _Turn:
    """The slice that all requests of a cluster share in a turn of the event loop."""

    def __init__(self) -> None:
        self._end_s = 0.0
        self._is_taken = False
        """The slice of this turn has begun, or is reserved for those who waited."""
        self._holder: Slices | None = None
        self._waiting: deque[Slices] = deque()

    def may_go_on(self, slices: Slices) -> bool:
        """Whether there is time left, and nobody else waits. The first one in a turn begins the slice."""
        if not self._is_taken:
            self._is_taken, self._holder = True, slices
            self.begin()
            asyncio.get_running_loop().call_soon(self._next)
            return True
        return monotonic() < self._end_s and (slices is self._holder or not self._waiting)

    def begin(self) -> None:
        self._end_s = monotonic() + SLICE_S

    def wait(self, slices: Slices) -> None:
        """`slices` are resumed in a later turn, after those that already wait."""
        self._waiting.append(slices)

    def _next(self) -> None:
        """End the slice of this turn. The request that has waited longest has the next one."""
        self._end_s, self._is_taken = 0.0, False
        while self._waiting and not self._is_taken:
            self._holder = self._waiting.popleft()
            self._is_taken = self._holder.resume()
        if self._is_taken:  # after the resumed tasks, in the next turn
            asyncio.get_running_loop().call_soon(self._next)


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[int, _Turn]] = WeakKeyDictionary()
"""By cluster, as long as requests of it are at work."""


def _turn() -> _Turn:
    """Of the cluster for which the current task works."""
    turns = _turns.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    return turns.setdefault(cluster_at_work.get(), _Turn())


class Slices:
    """For loops without an await of their own: call `await slices.pause()` in each round."""

    def __init__(self) -> None:
        self._turn = _turn()
        self._resumed: list[asyncio.Future[None]] = []
        """One for each task that waits."""
        self._begins = False

    async def pause(self) -> None:
        """Return immediately, or in a later turn of the event loop. Many tasks may share one slice."""
        while not self._turn.may_go_on(self):
            if self._begins:  # One task continues in each turn, even if other work has used up the slice.
                self._begins = False
                self._turn.begin()
                return
            if not self._resumed:
                self._turn.wait(self)
            resumed = asyncio.get_running_loop().create_future()
            self._resumed.append(resumed)
            await resumed

    def resume(self) -> bool:
        """False if nobody waits any more."""
        resumed = [each for each in self._resumed if not each.done()]
        self._resumed = []
        self._begins = bool(resumed)
        for each in resumed:
            each.set_result(None)
        return bool(resumed)


async def sliced(items: Iterable[T]) -> AsyncIterator[T]:
    """The items. Other work has its turn after each STEP_ITEMS of them, as with `Slices`; short lists have no pause."""
    slices: Slices | None = None
    for number, item in enumerate(items):
        if number and number % STEP_ITEMS == 0:
            slices = slices or Slices()
            await slices.pause()
        yield item


async def in_steps(items: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    """The items, STEP_ITEMS at a time. Other work has its turn in between, as with `Slices`."""
    slices = Slices()
    for start in range(0, len(items), STEP_ITEMS):
        await slices.pause()
        yield items[start : start + STEP_ITEMS]


async def sorted_in_slices(items: Sequence[Sortable]) -> list[Sortable]:
    """The items in order. To sort half a million at once takes a third of a second, in a thread, too."""
    if len(items) <= SORTED_AT_ONCE:
        return sorted(items)
    slices, runs = Slices(), []
    for start in range(0, len(items), SORTED_AT_ONCE):
        await slices.pause()
        runs.append(sorted(items[start : start + SORTED_AT_ONCE]))
    return [item async for item in sliced(merge(*runs))]


async def fan_out(work: Callable[[T], Awaitable[R]], items: Sequence[T], *, at_once: int = AT_ONCE) -> list[R]:
    """The results of `work` for all items, in their order. The first exception cancels the rest and is raised."""
    results = cast(list[R], [None] * len(items))  # in their places: to put them in order would be one long step
    slices, numbers = Slices(), count()

    async def work_off() -> None:
        while (number := next(numbers)) < len(items):
            await slices.pause()
            results[number] = await work(items[number])

    if at_once == 1 or len(items) <= 1:
        await work_off()
    else:
        await _all_or_none([run_part(work_off()) for _ in range(min(at_once, len(items)))])
    return results


async def _all_or_none(tasks: Sequence[asyncio.Task[None]]) -> None:
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
