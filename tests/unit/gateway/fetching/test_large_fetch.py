"""Fetches of very many partitions. Here a slice has one partition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from gateway import fan_out
from gateway.fetching.fetch_answer import FetchAnswer, PartitionAnswer, group_by_topic
from gateway.fetching.fetch_session import FetchedPartition
from gateway.fetching.fetched_parts import FetchParams, FetchPartitionState
from gateway.fetching.large_fetch import LargeFetch
from gateway.log.partition_log import PartitionLog
from protocol.kafka.errors import ErrorCode
from tests.unit.gateway.fetching.delayed_fetch_scene import BATCH, FakeLog, answer

PARTITIONS = 20


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "SLICE_S", 0.0)
    monkeypatch.setattr(fan_out, "STEP_ITEMS", 1)


class Scene:
    """Partitions of one topic: `logs` are open, the others have none, and have to be opened."""

    def __init__(self, *logs: FakeLog, cold: int = 0, max_wait_ms: int = 60_000, room_bytes: int = 1 << 20) -> None:
        self.parts = []
        for number in range(len(logs) + cold):
            part = FetchPartitionState(FetchedPartition("t", number, 0, 1 << 20, -1, -1))
            if number < len(logs):
                part.log = cast(PartitionLog, logs[number])
            self.parts.append(part)
        self.held_bytes = self.most_held_bytes = self.shown = 0
        params = FetchParams(
            max_wait_ms=max_wait_ms, min_bytes=1, room_bytes=lambda: room_bytes, whole_first_batch=True,
            read_committed=False, beyond_end=lambda: ErrorCode.OFFSET_OUT_OF_RANGE,
        )  # fmt: skip
        self.fetch = LargeFetch(params, self.parts, self.open_log, self.respond, self.hold)
        self.fetch.start()

    async def open_log(self, part: FetchPartitionState) -> None:
        await asyncio.sleep(0)
        part.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def respond(self, rows: list[PartitionAnswer]) -> FetchAnswer:
        async for some in fan_out.in_steps(rows):
            self.shown += len(some)
        return FetchAnswer(responses=group_by_topic(rows, by_id=False))

    def hold(self, size_bytes: int) -> None:
        self.held_bytes += size_bytes
        self.most_held_bytes = max(self.most_held_bytes, self.held_bytes)

    async def turns_until(self, reached: Callable[[], bool]) -> int:
        turns = 0
        async with asyncio.timeout(5):
            while not reached():
                turns += 1
                await asyncio.sleep(0)
        return turns


async def test_others_have_their_turn_between_partitions() -> None:
    scene = Scene(*[FakeLog(1) for _ in range(PARTITIONS)])
    turns = await scene.turns_until(scene.fetch.future.done)
    assert turns > 3.5 * PARTITIONS, "to find closed logs, to look for data, to make the rows, and to make the answer"
    assert await answer(scene.fetch.future) == [(0, BATCH)] * PARTITIONS


async def test_logs_that_have_to_be_opened() -> None:
    scene = Scene(cold=PARTITIONS)
    assert await answer(scene.fetch.future) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)] * PARTITIONS


async def test_what_is_appended_during_a_look_is_found() -> None:
    logs = [FakeLog(0) for _ in range(PARTITIONS)]
    scene = Scene(*logs)
    await scene.turns_until(lambda: len(logs[1].waiters) > 0)
    logs[0].move()  # this partition was looked at already
    assert (await answer(scene.fetch.future))[0] == (0, BATCH)


async def test_max_wait() -> None:
    scene = Scene(*[FakeLog(0) for _ in range(PARTITIONS)], max_wait_ms=1)
    assert await answer(scene.fetch.future) == [(0, 0)] * PARTITIONS
    assert not any(cast(FakeLog, part.log).waiters for part in scene.parts)


async def test_a_log_that_is_closed_before_its_row_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another gateway leads the partition now, and nothing may read the log any more."""
    logs = [FakeLog(1) for _ in range(PARTITIONS)]
    scene = Scene(*logs)
    made = scene.fetch._made

    async def closed_and_made() -> FetchAnswer:
        logs[-1].closed = True
        return await made()

    monkeypatch.setattr(scene.fetch, "_made", closed_and_made)
    rows = await answer(scene.fetch.future)
    assert rows == [(0, BATCH)] * (PARTITIONS - 1) + [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)]


async def test_the_rows_share_the_room() -> None:
    scene = Scene(*[FakeLog(2) for _ in range(PARTITIONS)], room_bytes=3 * BATCH)
    assert [size_bytes for _, size_bytes in await answer(scene.fetch.future)][:4] == [2 * BATCH, BATCH, 0, 0]
    assert (scene.most_held_bytes, scene.held_bytes) == (3 * BATCH, 0)


async def test_a_client_that_disconnects_ends_the_work() -> None:
    logs = [FakeLog(1) for _ in range(PARTITIONS)]
    scene = Scene(*logs)
    await scene.turns_until(lambda: scene.shown > 1)
    assert scene.held_bytes == PARTITIONS * BATCH
    scene.fetch.future.cancel()
    await asyncio.sleep(0.01)
    assert scene.shown < PARTITIONS
    assert scene.held_bytes == 0
    assert not any(log.waiters for log in logs)


async def test_a_failure_is_that_of_the_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog(1)
    monkeypatch.setattr(log, "read", lambda *_, **__: 1 / 0)
    scene = Scene(*[FakeLog(1) for _ in range(PARTITIONS)], log)
    with pytest.raises(ZeroDivisionError):
        await answer(scene.fetch.future)
    assert scene.held_bytes == 0
