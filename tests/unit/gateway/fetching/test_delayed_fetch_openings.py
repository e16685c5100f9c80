"""A fetch waits for logs that are not open yet, but not for long."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import KafkaError
from protocol.kafka.errors import ErrorCode
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.fetching.delayed_fetch_scene import BATCH, FakeLog, answer, fetch, opening, parked


async def test_logs_that_are_not_open_yet_are_waited_for() -> None:
    cold, warm = opening(), FakeLog(3)
    outcome = parked(fetch((cold, 0), (warm, 0)))
    await let_callbacks_run()
    assert not outcome.done()
    cold.set_result(FakeLog(2))
    assert await answer(outcome) == [(0, 2 * BATCH), (0, 3 * BATCH)]


async def test_logs_are_waited_for_a_little_longer_than_max_wait() -> None:
    cold = opening()
    outcome = parked(fetch((cold, 0), (FakeLog(3), 0), max_wait_ms=0))
    await asyncio.sleep(0.01)
    assert not outcome.done()
    cold.set_result(FakeLog(0))
    assert await answer(outcome) == [(0, 0), (0, 3 * BATCH)]


async def test_a_log_that_does_not_open_holds_up_no_others_for_long(no_grace: None) -> None:
    outcome = parked(fetch((opening(), 0), (FakeLog(3), 0), max_wait_ms=1))
    assert await answer(outcome) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0), (0, 3 * BATCH)]


async def test_others_wake_it_while_a_log_does_not_open(no_grace: None) -> None:
    warm = FakeLog(0)
    outcome = parked(fetch((opening(), 0), (warm, 0), max_wait_ms=1))
    await asyncio.sleep(0.02)
    assert not outcome.done()
    warm.move()
    assert await answer(outcome) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0), (0, BATCH)]
    await let_callbacks_run()
    assert not warm.waiters


async def test_a_log_that_cannot_be_opened_is_reported_at_once() -> None:
    cold = opening()
    outcome = parked(fetch((cold, 0), (FakeLog(0), 0)))
    cold.set_exception(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert await answer(outcome) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0), (0, 0)]


async def test_a_log_that_opens_is_waited_on_like_the_others() -> None:
    cold, log = opening(), FakeLog(0)
    outcome = parked(fetch((cold, 0)))
    cold.set_result(log)
    await let_callbacks_run()
    assert not outcome.done()
    log.move()
    assert await answer(outcome) == [(0, BATCH)]


async def test_an_unexpected_exception_while_opening_answers_the_fetch() -> None:
    cold = opening()
    outcome = parked(fetch((cold, 0), (FakeLog(0), 0)))
    await asyncio.sleep(0)
    cold.set_exception(RuntimeError("defect"))
    with pytest.raises(RuntimeError, match="defect"):
        await asyncio.wait_for(outcome, 5)
