"""For how long the event loop is busy with a request: the time of its steps, without the time that it waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Protocol, TypeVar, cast

T = TypeVar("T")


class Busy(Protocol):
    busy_s: float


_measured: Busy | None = None
"""What the step belongs to that runs now, if it is measured."""


def run_measured(busy: Busy, step: Callable[..., T], *arguments: Any) -> T:
    """Run a step, and add its time to `busy.busy_s`."""
    global _measured  # noqa: PLW0603
    before, _measured = _measured, busy
    began_s = time.perf_counter()
    try:
        return step(*arguments)
    finally:
        busy.busy_s += time.perf_counter() - began_s
        _measured = before


class Followed(Coroutine[Any, Any, T]):
    """A coroutine whose result is changed.

    If it is closed or cancelled before its first step, so is the coroutine in it. An async function that awaits the
    coroutine would not do that, and Python would warn of a coroutine that was never awaited.
    """

    __slots__ = ("_then", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], then: Callable[[T], T] | None = None) -> None:
        """`then` changes the result."""
        self._work = work
        self._then = then

    def send(self, value: Any) -> Any:
        return self._step(self._work.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._work.throw, *error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return cast(Generator[Any, Any, T], self)

    def __next__(self) -> Any:
        return self.send(None)

    def _step(self, step: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return self._run(step, *arguments)
        except StopIteration as done:
            if self._then is None:
                raise
            raise StopIteration(self._then(done.value)) from None

    def _run(self, step: Callable[..., Any], *arguments: Any) -> Any:
        return step(*arguments)


class Measured(Followed[T]):
    """A coroutine whose steps are measured."""

    __slots__ = ("_busy",)

    def __init__(self, work: Coroutine[Any, Any, T], busy: Busy, then: Callable[[T], T] | None = None) -> None:
        super().__init__(work, then)
        self._busy = busy

    def _run(self, step: Callable[..., Any], *arguments: Any) -> Any:
        return run_measured(self._busy, step, *arguments)


def run_part(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run a part of the current step's work in a task of its own. It is measured if the step is."""
    return asyncio.create_task(work if _measured is None else Measured(work, _measured))
