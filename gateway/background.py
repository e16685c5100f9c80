"""Background tasks: no exception ends one silently.

Use `keep_running` to start a loop that has to keep running, and `run_once` for work that nobody awaits. A `TaskGroup`
ends its tasks together with the part that owns it. An unexpected exception is passed to the event loop's exception
handler, to which asyncio reports failed callbacks, too: `FailureHandler` is the only place that logs and counts them.
If a loop fails again and again, the process ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

import structlog

from gateway.observability.metrics import Metrics

RESTART_PAUSE_S = 1.0
MAX_FAILURES = 5
FAILURE_WINDOW_S = 60.0
"""A loop that failed more than MAX_FAILURES times within this time does not recover by being started again."""

_TASK, _KEEPS_FAILING = "background_task", "keeps_failing"
_running: set[asyncio.Task[Any]] = set()
"""Keeps references to the tasks, because the event loop has only weak references."""

T = TypeVar("T")

log = structlog.get_logger()


class BackgroundFailure(Exception):
    """A background task keeps failing: the process cannot work correctly any more."""


def keep_running(name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
    """Run a loop in the background until the task is cancelled; after an exception it starts again."""
    return _hold(asyncio.create_task(_keep_running(name, run), name=name))


def run_once(name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run work in the background whose result nobody awaits."""
    task = _hold(asyncio.create_task(work, name=name))
    task.add_done_callback(_report_failed)
    return task


def run_shared(name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run work for several callers, who await the task; its exception is theirs, even if all of them have left.

    The work itself has to change the state that its callers look at. A callback of the task comes a turn of the event
    loop later, and a caller in between would find the ended task.
    """
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_retrieve_exception)
    return task


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


class TaskGroup:
    """Background tasks of one part, which end with it. Unlike in asyncio's, a failed task does not end the others."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def keep_running(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._own(keep_running(name, run))

    def run_once(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """The work may be cancelled before it begins: then nothing of it runs, and no `finally` in it either."""
        task = run_once(name, work)
        self._own(task)
        return task

    def _own(self, task: asyncio.Task[None]) -> None:
        if self._closed:
            task.cancel()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancel the running tasks, and return when all have ended. Tasks that are started later are cancelled
        immediately."""
        self._closed = True
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def to_the_end(name: str, work: Coroutine[Any, Any, T], refusal: type[Exception]) -> T:
    """The result of `work`, which continues if the caller is cancelled, for instance after a client disconnected.

    Its failures are logged then, but not a `refusal`, which concerns the caller only.
    """
    task = _hold(asyncio.create_task(work, name=name))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(partial(_log_failed, refusal))
        raise


def _log_failed(refusal: type[Exception], task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, refusal):
        log.warning("background work failed", task=task.get_name(), error=repr(error))


def _hold(task: asyncio.Task[T]) -> asyncio.Task[T]:
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task


async def _keep_running(name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = asyncio.get_running_loop()
    failures: deque[float] = deque(maxlen=MAX_FAILURES)
    while True:
        try:
            await run()
            return
        except (Exception, asyncio.CancelledError) as error:
            if _is_cancelled(error):
                raise
            keeps_failing = len(failures) == MAX_FAILURES and loop.time() - failures[0] < FAILURE_WINDOW_S
            failures.append(loop.time())
            report(name, error, keeps_failing=keeps_failing)
        await asyncio.sleep(RESTART_PAUSE_S)


def _is_cancelled(error: BaseException) -> bool:
    """Whether the running task itself was cancelled; it may also be a task that it awaited."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _report_failed(task: asyncio.Task[None]) -> None:
    if task.cancelled():
        if not task.cancelling():
            report(task.get_name(), asyncio.CancelledError("the task that it waited for was cancelled"))
    elif (error := task.exception()) is not None:
        report(task.get_name(), error)


def report(name: str, error: BaseException, *, keeps_failing: bool = False) -> None:
    """Report an unexpected exception in a task that nobody awaits."""
    asyncio.get_running_loop().call_exception_handler(
        {"message": "background task failed", "exception": error, _TASK: name, _KEEPS_FAILING: keeps_failing}
    )


class FailureHandler:
    """The event loop's exception handler: logs and counts unexpected exceptions."""

    def __init__(self, metrics: Metrics) -> None:
        self.failed: asyncio.Future[BackgroundFailure] = asyncio.get_running_loop().create_future()
        """Set when a task keeps failing: the gateway has to stop."""
        self._failures = metrics.unexpected_failures
        asyncio.get_running_loop().set_exception_handler(self._handle)

    @property
    def reason(self) -> str | None:
        """The reason why the process is not healthy; None if it is healthy."""
        return str(self.failed.result()) if self.failed.done() else None

    def _handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, KeyboardInterrupt | SystemExit):
            return
        task = context.get(_TASK, "callback")
        self._failures.labels(task).inc()
        log.error(context["message"], task=task, error=repr(error), exc_info=error)
        if context.get(_KEEPS_FAILING) and not self.failed.done():
            self.failed.set_result(BackgroundFailure(f"background task '{task}' keeps failing: {error!r}"))
