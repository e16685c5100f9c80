"""Background tasks that fail: restarted, reported, and finally fatal."""

from __future__ import annotations

import asyncio
import gc

import pytest
from structlog.testing import capture_logs

from gateway import background
from gateway.background import FailureHandler, TaskGroup, keep_running, run_once, to_the_end
from gateway.observability.metrics import Metrics


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "RESTART_PAUSE_S", 0)


def _failures(metrics: Metrics, task: str) -> float:
    return metrics.registry.get_sample_value("kafka_gateway_unexpected_failures_total", {"task": task}) or 0


async def test_a_loop_that_fails_runs_again() -> None:
    metrics = Metrics()
    handler = FailureHandler(metrics)
    goes_on = asyncio.Event()
    runs = 0

    async def run() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise KeyError("once")
        goes_on.set()
        await asyncio.Event().wait()

    task = keep_running("counter", run)
    await goes_on.wait()
    assert _failures(metrics, "counter") == 1
    assert handler.reason is None and not handler.failed.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_loop_that_keeps_failing_is_fatal() -> None:
    metrics = Metrics()
    handler = FailureHandler(metrics)

    async def run() -> None:
        raise KeyError("always")

    task = keep_running("broken", run)
    failure = await handler.failed
    assert str(failure) == handler.reason == "background task 'broken' keeps failing: KeyError('always')"
    assert _failures(metrics, "broken") == background.MAX_FAILURES + 1
    task.cancel()


async def test_failures_far_apart_are_not_fatal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FAILURE_WINDOW_S", 0)
    metrics = Metrics()
    handler = FailureHandler(metrics)

    async def run() -> None:
        raise KeyError("now and then")

    task = keep_running("rare", run)
    while _failures(metrics, "rare") < 3 * background.MAX_FAILURES:
        await asyncio.sleep(0)
    assert handler.reason is None
    task.cancel()


async def test_work_that_nobody_awaits_is_reported_and_not_collected() -> None:
    metrics = Metrics()
    FailureHandler(metrics)
    released = asyncio.get_running_loop().create_future()

    async def work() -> None:
        await released
        raise ValueError("lost")

    run_once("work", work())
    await asyncio.sleep(0)
    gc.collect()
    released.set_result(None)
    for _ in range(3):
        await asyncio.sleep(0)
    assert _failures(metrics, "work") == 1


async def test_a_cancelled_task_is_no_failure() -> None:
    metrics = Metrics()
    FailureHandler(metrics)
    task = run_once("work", asyncio.sleep(60))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0)
    assert _failures(metrics, "work") == 0


async def test_a_callback_that_raises_is_counted() -> None:
    metrics = Metrics()
    FailureHandler(metrics)
    asyncio.get_running_loop().call_soon(lambda: next(iter(())))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert _failures(metrics, "callback") == 1


async def test_a_loop_ends_by_its_own_cancellation_only() -> None:
    """Others may cancel the task that it waits for."""
    metrics = Metrics()
    FailureHandler(metrics)
    shared = asyncio.get_running_loop().create_future()
    goes_on = asyncio.Event()

    async def run() -> None:
        if shared.done():
            goes_on.set()
            await asyncio.Event().wait()
        await shared

    task = keep_running("waits for others", run)
    await asyncio.sleep(0)
    shared.cancel()
    async with asyncio.timeout(5):
        await goes_on.wait()
    assert _failures(metrics, "waits for others") == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()


async def test_work_that_others_have_cancelled_is_reported() -> None:
    metrics = Metrics()
    FailureHandler(metrics)
    shared = asyncio.get_running_loop().create_future()

    async def work() -> None:
        await shared

    task = run_once("work", work())
    await asyncio.sleep(0)
    shared.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0)
    assert _failures(metrics, "work") == 1


async def test_a_group_ends_all_that_it_started() -> None:
    metrics = Metrics()
    FailureHandler(metrics)
    group = TaskGroup()
    ended: list[str] = []

    async def run(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    async def fail() -> None:
        raise ValueError("lost")

    group.keep_running("loop", lambda: run("loop"))
    group.run_once("work", run("work"))
    group.run_once("failing", fail())
    for _ in range(3):
        await asyncio.sleep(0)
    assert _failures(metrics, "failing") == 1
    await group.close()
    assert sorted(ended) == ["loop", "work"], "one that failed has ended no other"
    group.run_once("late", run("late"))
    await group.close()
    assert sorted(ended) == ["loop", "work"], "what comes late does not begin"
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize(
    ("error", "logged"), [(KeyError("refused"), []), (ValueError("broken"), ["ValueError('broken')"])]
)
async def test_work_continues_without_its_caller(error: Exception, logged: list[str]) -> None:
    """Its failure is logged, unless it concerned the caller only."""
    may_end = asyncio.Event()

    async def work() -> None:
        await may_end.wait()
        raise error

    caller = asyncio.create_task(to_the_end("work", work(), refusal=KeyError))
    await asyncio.sleep(0)
    caller.cancel()
    with capture_logs() as lines:
        await asyncio.wait([caller])
        may_end.set()
        for _ in range(5):
            await asyncio.sleep(0)
    assert [line["error"] for line in lines] == logged
