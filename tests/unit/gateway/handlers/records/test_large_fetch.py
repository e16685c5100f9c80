"""Fetch requests that name very many partitions. Here a slice has one partition, and "very many" are three."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from gateway import fan_out
from gateway.fetching.fetch_session import FINAL_EPOCH, FetchSessions
from gateway.handlers.records import fetch
from gateway.requests.cluster import Unread
from gateway.requests.policy import ALL_ALLOWED
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import FetchRequest, FetchResponse

PARTITIONS = 20
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_Topic = FetchRequest.FetchTopic
_Forgotten = FetchRequest.ForgottenTopic


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "SLICE_S", 0.0)
    monkeypatch.setattr(fan_out, "STEP_ITEMS", 1)
    monkeypatch.setattr(fetch, "RESOLVED_AT_ONCE", 2)


class Scene:
    """A gateway whose cluster has no topics."""

    def __init__(self) -> None:
        self.sessions = FetchSessions(10)
        limits = SimpleNamespace(max_fetch_bytes=1 << 20, fetch_budget_bytes=1 << 20)
        self.cluster = SimpleNamespace(
            topics=SimpleNamespace(cached=lambda name: None, get=AsyncMock(return_value=None)),
            fetch_sessions=self.sessions, config=SimpleNamespace(limits=limits), unread=Unread(),
        )  # fmt: skip
        self.errors: list[ErrorCode] = []

    def ask(
        self, *, named: int = 0, forgotten: int = 0, session_id: int = 0, epoch: int = FINAL_EPOCH, isolation: int = 0
    ) -> asyncio.Task[Any]:
        partitions = [_Topic.FetchPartition(partition=number) for number in range(named)]
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, isolation_level=isolation, session_id=session_id,
            session_epoch=epoch, rack_id="", topics=[_Topic(topic="t", partitions=partitions)] if named else [],
            forgotten_topics_data=[_Forgotten(topic="t", partitions=[*range(forgotten)])] if forgotten else [],
        )  # fmt: skip
        call: Any = SimpleNamespace(
            request=request, frame=None, version=12, cluster=self.cluster, client=SimpleNamespace(host="h", number=1),
            topics=self.cluster.topics, context=SimpleNamespace(policy=ALL_ALLOWED), count_error=self.errors.append,
        )  # fmt: skip
        return asyncio.create_task(fetch.handle(call).result())


async def turns_until(task: asyncio.Task[Any]) -> int:
    turns = 0
    async with asyncio.timeout(10):
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
    return turns


def rows(response: FetchResponse) -> list[tuple[int, int]]:
    return [(row.partition_index, row.error_code) for topic in response.responses for row in topic.partitions]


async def test_each_step_has_few_partitions() -> None:
    scene = Scene()
    task = scene.ask(named=PARTITIONS)
    assert await turns_until(task) > 5.5 * PARTITIONS
    assert rows(task.result()) == [(number, UNKNOWN) for number in range(PARTITIONS)]
    assert scene.errors == [UNKNOWN] * PARTITIONS


async def test_forgotten_partitions() -> None:
    scene = Scene()
    first = await scene.ask(named=PARTITIONS, epoch=0)
    task = scene.ask(forgotten=PARTITIONS - 3, session_id=first.session_id, epoch=1)
    assert await turns_until(task) > PARTITIONS
    assert rows(task.result()) == [(number, UNKNOWN) for number in range(PARTITIONS - 3, PARTITIONS)]


async def test_a_session_that_moves_on_meanwhile() -> None:
    scene = Scene()
    first = await scene.ask(named=PARTITIONS, epoch=0)
    late = scene.ask(named=PARTITIONS, session_id=first.session_id, epoch=1)
    session = scene.sessions.find("h", first.session_id)
    assert session is not None
    while session.epoch == 1:
        await asyncio.sleep(0)
    before = [part.answered_watermark for part in session.partitions.values()]
    next_one = scene.ask(named=1, session_id=first.session_id, epoch=2)
    assert (await late).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert [part.answered_watermark for part in session.partitions.values()] == before
    assert rows(await next_one) == [(number, UNKNOWN) for number in range(PARTITIONS)]


async def test_a_refused_isolation_level() -> None:
    task = Scene().ask(named=PARTITIONS, isolation=7)
    assert await turns_until(task) > 2.5 * PARTITIONS
    assert rows(task.result()) == [(number, ErrorCode.UNKNOWN_SERVER_ERROR) for number in range(PARTITIONS)]
