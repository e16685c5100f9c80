"""The time of a coroutine's steps."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest

from gateway.busy_time import Measured, run_measured, run_part


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now_s)

    async def work(self, result: str = "") -> str:
        """Two steps of a second each."""
        self.now_s += 1
        await asyncio.sleep(0)
        self.now_s += 1
        return result


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def busy() -> SimpleNamespace:
    return SimpleNamespace(busy_s=0.0)


async def test_a_task(clock: Clock, busy: SimpleNamespace) -> None:
    others = asyncio.create_task(clock.work())
    assert await asyncio.create_task(Measured(clock.work("a"), busy, then=lambda found: found + "b")) == "ab"
    await others
    assert (busy.busy_s, clock.now_s) == (2, 4)


async def test_a_part_of_a_task(clock: Clock, busy: SimpleNamespace) -> None:
    assert await Measured(clock.work("a"), busy) == "a"
    assert busy.busy_s == 2


async def test_parts_that_run_in_tasks_of_their_own(clock: Clock, busy: SimpleNamespace) -> None:
    async def inner() -> None:
        await run_part(clock.work())

    async def outer() -> None:
        await asyncio.gather(*(run_part(inner()) for _ in range(3)))

    await asyncio.create_task(outer())
    assert busy.busy_s == 0, "nothing is measured without a measured task"
    await asyncio.create_task(Measured(outer(), busy))
    assert busy.busy_s == 6


async def test_a_part_of_a_step_without_a_task(clock: Clock, busy: SimpleNamespace) -> None:
    assert await run_measured(busy, run_part, clock.work("a")) == "a"
    await run_part(clock.work())
    assert busy.busy_s == 2


async def test_an_exception_is_passed_on(clock: Clock, busy: SimpleNamespace) -> None:
    async def fail() -> None:
        await clock.work()
        raise KeyError("x")

    with pytest.raises(KeyError):
        await asyncio.create_task(Measured(fail(), busy))
    assert busy.busy_s == 2


async def test_a_cancelled_task_ends(clock: Clock, busy: SimpleNamespace) -> None:
    ended = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            clock.now_s += 1
            ended.append(True)

    for begins in (True, False):
        task = asyncio.create_task(Measured(wait(), busy))
        if begins:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert ended == [True] and busy.busy_s == 1
