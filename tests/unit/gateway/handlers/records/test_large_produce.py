"""Produce requests of many batches: others have their turn meanwhile, and partitions wait side by side."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from gateway.handlers.records.produce_answers import Part
from protocol.kafka.handwritten.produce_request import ProducedPartition, ProducedTopic
from tests.unit.gateway.handlers.records.produces import produce


async def test_batches_that_could_be_appended_at_once_let_others_have_their_turn_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call, log = produce(-1)
    [part] = call._parts
    call._parts.extend([part] * 50)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def append(*_: Any) -> bool:
        time.sleep(0.001)
        appended_in.append(turns)
        return False

    appended_in: list[int] = []
    monkeypatch.setattr(log, "append", append)
    running = asyncio.create_task(others())
    await call.append_in_slices()
    running.cancel()
    assert len(appended_in) == 51
    assert len(set(appended_in)) > 1


async def test_a_request_of_many_batches_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    call, log = produce(-1)
    call._parts.clear()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    judged_in: list[int] = []

    def judge(part: Part) -> None:
        time.sleep(0.001)
        judged_in.append(turns)

    async def opened(*_: Any, **__: Any) -> Any:
        return log

    partitions = [ProducedPartition(index=number, records=memoryview(b"")) for number in range(200)]
    call.call.request.topic_data = [ProducedTopic(name="t", partition_data=partitions)]
    call.call.request.transactional_id = None
    topic = SimpleNamespace(partitions=200, compacts=False, writes_messages=False, pulsar_topic=lambda _: "t")
    topics = SimpleNamespace(cached=lambda _: topic, get=opened)
    cast(Any, call.call.cluster).topics = cast(Any, call.call).topics = topics
    cast(Any, call.call.cluster).logs = SimpleNamespace(find=lambda *_: log, open=opened)
    cast(Any, call.call.client).arrived_s = 0.0
    monkeypatch.setattr(call, "_check_batch", judge)
    running = asyncio.create_task(others())
    await asyncio.sleep(0)
    call.check()
    assert not call.ready
    async with asyncio.timeout(30):
        await call.prepare()
    running.cancel()
    assert len(judged_in) == 200
    assert max(judged_in.count(turn) for turn in set(judged_in)) < 100


async def test_the_partitions_of_a_request_wait_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a takeover each waits for a moment in which late entries of the evicted gateway may arrive."""
    call, _ = produce(-1)
    template = call._parts.pop()
    for index in range(500):
        part = Part(ProducedTopic(name="t"), index, None)
        part.produced, part.log = template.produced, template.log
        call._parts.append(part)
    waiting, may_go_on = 0, asyncio.Event()

    async def open_log(part: Part) -> None:
        nonlocal waiting
        waiting += 1
        await may_go_on.wait()

    monkeypatch.setattr(call, "_look_up", AsyncMock())
    monkeypatch.setattr(call, "_open_log", open_log)
    preparation = asyncio.create_task(call.prepare())
    async with asyncio.timeout(30):
        while waiting < 500:
            await asyncio.sleep(0)
    may_go_on.set()
    await preparation
