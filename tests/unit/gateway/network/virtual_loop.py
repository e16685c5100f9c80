"""An event loop whose time passes only while nothing is ready, and whose threads are calls in it.

What runs in it is the same each time, and an hour takes no time.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

THREAD_S = 0.02


class _Selector(selectors.DefaultSelector):
    """It does not wait: the time passes instead."""

    now_s = 1_000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        assert timeout is not None, "nothing will ever happen any more"
        self.now_s += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, random: Random) -> None:
        self.clock = _Selector()
        self._random = random
        self.failures: list[dict[str, Any]] = []
        """What nobody has handled."""
        super().__init__(self.clock)
        self.set_exception_handler(lambda _, context: self.failures.append(context))

    def time(self) -> float:
        return self.clock.now_s

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        result = self.create_future()

        def run() -> None:
            if result.cancelled():
                return
            try:
                result.set_result(func(*args))
            except Exception as error:
                result.set_exception(error)

        self.call_later(self._random.uniform(0, THREAD_S), run)
        return result

    @property
    def timers(self) -> list[asyncio.TimerHandle]:
        """Those that are to come."""
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        return [each for each in scheduled if not each.cancelled()]

    @contextlib.contextmanager
    def as_the_clock(self) -> Iterator[None]:
        """`time.monotonic` and `time.time` are the time of this loop, too."""
        real, time.monotonic, time.time = (time.monotonic, time.time), self.time, self.time
        try:
            yield
        finally:
            time.monotonic, time.time = real
