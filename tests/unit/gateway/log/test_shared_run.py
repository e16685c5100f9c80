"""Many callers at the same time, and one run for all."""

import asyncio
import time

import pytest

from gateway.errors import KafkaError
from gateway.log.shared_run import SharedRun, outcome_of
from protocol.kafka.errors import ErrorCode


class Work:
    def __init__(self) -> None:
        self.begun = 0
        self.go_on = asyncio.Event()
        self.failure: Exception | None = None

    async def __call__(self) -> None:
        self.begun += 1
        await self.go_on.wait()
        if self.failure is not None:
            raise self.failure


async def begun(work: Work, count: int) -> None:
    while work.begun < count:
        await asyncio.sleep(0)


async def test_callers_during_a_run_share_the_next_one() -> None:
    work = Work()
    shared = SharedRun(work)
    first = asyncio.create_task(shared.wait())
    await begun(work, 1)
    later = [asyncio.create_task(shared.wait()) for _ in range(10)]
    await asyncio.sleep(0)
    assert work.begun == 1
    work.go_on.set()
    await asyncio.gather(first, *later)
    assert work.begun == 2


async def test_all_hear_of_a_failure_and_the_next_run_is_a_new_one() -> None:
    work = Work()
    shared = SharedRun(work)
    work.failure = RuntimeError("no")
    work.go_on.set()
    outcomes = await asyncio.gather(shared.wait(), shared.wait(), return_exceptions=True)
    assert list(outcomes) == [work.failure, work.failure]
    work.failure = None
    await shared.wait()
    assert work.begun == 2


async def test_a_cancelled_caller_does_not_end_the_run_of_others() -> None:
    work = Work()
    shared = SharedRun(work)
    impatient, patient = asyncio.create_task(shared.wait()), asyncio.create_task(shared.wait())
    await begun(work, 1)
    impatient.cancel()
    work.go_on.set()
    await patient
    with pytest.raises(asyncio.CancelledError):
        await impatient


async def test_a_run_without_callers_is_started_once() -> None:
    work = Work()
    shared = SharedRun(work)
    for _ in range(3):
        shared.start()
        await begun(work, 1)
    waiting = asyncio.create_task(shared.wait())
    await asyncio.sleep(0)
    shared.start()
    work.go_on.set()
    await waiting
    assert work.begun == 2
    shared.start()
    await begun(work, 3)


async def test_the_end_of_what_others_wait_for_too_is_an_error_to_each() -> None:
    work = asyncio.create_task(asyncio.sleep(60))
    waiting = [asyncio.create_task(outcome_of(work)) for _ in range(2)]
    await asyncio.sleep(0)
    work.cancel()
    for task in waiting:
        with pytest.raises(KafkaError) as closed:
            await task
        assert closed.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_only_the_cancelled_caller_ends() -> None:
    work = asyncio.create_task(asyncio.sleep(0.01, "done"))
    waiting, other = asyncio.create_task(outcome_of(work)), asyncio.create_task(outcome_of(work))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await other == "done"


async def test_what_a_run_covers() -> None:
    """Callers before its start; none while it runs, or when it failed."""
    failing, working = [True], asyncio.Event()

    async def work() -> None:
        await working.wait()
        if failing.pop(0):
            raise ValueError

    run = SharedRun(work)
    before = time.monotonic()
    waiting = asyncio.ensure_future(run.wait())
    await asyncio.sleep(0.001)
    during = time.monotonic()
    assert not run.covers(before)
    working.set()
    with pytest.raises(ValueError):
        await waiting
    assert not run.covers(before)
    failing.append(False)
    await run.wait()
    assert run.covers(during)
    assert not run.covers(time.monotonic())
