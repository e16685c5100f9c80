"""For how long the event loop is busy with a request: the time of its steps, without the time that it waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Protocol, TypeVar, cast

T = TypeVar("T")


class Busy(Protocol):
    busy_s: float


class Measured(Coroutine[Any, Any, T]):
    """A coroutine that adds the time of its steps to `busy.busy_s`."""

    __slots__ = ("_busy", "_then", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], busy: Busy, then: Callable[[T], T] | None = None) -> None:
        """`then` changes the result."""
        self._work = work
        self._busy = busy
        self._then = then

    def beside(self, part: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """A part of the work that runs in a task of its own, and is measured, too."""
        return Measured(part, self._busy)

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
        began_s = time.perf_counter()
        try:
            return step(*arguments)
        except StopIteration as done:
            if self._then is None:
                raise
            raise StopIteration(self._then(done.value)) from None
        finally:
            self._busy.busy_s += time.perf_counter() - began_s


def as_part(part: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """A part of the current task's work, to be run in a task of its own: it is measured if the current task is."""
    task = asyncio.current_task()
    work = None if task is None else task.get_coro()
    return work.beside(part) if isinstance(work, Measured) else part
