"""Fetch requests that name very many partitions. Here a slice has one partition, and "very many" are three."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from gateway import fan_out
from gateway.fetching.fetch_session import FINAL_EPOCH, FetchSession, FetchSessions
from gateway.fetching.fetch_waits import FetchWaits
from gateway.handlers.records import fetch
from gateway.requests.cluster import Unread
from gateway.requests.context import Client
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
            fetch_waits=FetchWaits(),
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
            request=request, frame=None, version=12, cluster=self.cluster, client=Client("h:1"),
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
    session = scene.sessions.find("/h", first.session_id)
    assert session is not None
    while session.epoch != 2:
        await asyncio.sleep(0)
    before = [part.answered_watermark for part in session.partitions.values()]
    next_one = scene.ask(named=1, session_id=first.session_id, epoch=2)
    assert (await late).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert [part.answered_watermark for part in session.partitions.values()] == before
    assert rows(await next_one) == [(number, UNKNOWN) for number in range(PARTITIONS)]


async def half_changed(scene: Scene, session: FetchSession, *, named: int = 0, forgotten: int = 0) -> asyncio.Task[Any]:
    """A request that changes the session, and has changed about the half of it."""
    before = len(session.partitions)
    task = scene.ask(named=named, forgotten=forgotten, session_id=session.session_id, epoch=session.epoch)
    async with asyncio.timeout(10):
        while abs(len(session.partitions) - before) < PARTITIONS // 2:
            assert not task.done()
            await asyncio.sleep(0)
    assert abs(len(session.partitions) - before) == PARTITIONS // 2, "others have their turn between the changes"
    return task


async def begun(scene: Scene, partitions: int) -> FetchSession:
    answer = await scene.ask(named=partitions, epoch=0)
    session = scene.sessions.find("/h", answer.session_id)
    assert session is not None
    return session


async def test_a_session_forgets_partitions_in_slices() -> None:
    scene = Scene()
    session = await begun(scene, PARTITIONS + 1)
    task = await half_changed(scene, session, forgotten=PARTITIONS)
    assert rows(await task) == [(PARTITIONS, UNKNOWN)]
    assert scene.sessions._partitions == session.size == 1


async def test_a_session_gets_partitions_in_slices() -> None:
    scene = Scene()
    session = await begun(scene, 1)
    task = await half_changed(scene, session, named=PARTITIONS)
    assert rows(await task) == [(number, UNKNOWN) for number in range(PARTITIONS)]
    assert scene.sessions._partitions == session.size == PARTITIONS


@pytest.mark.parametrize("epoch", [1, 2])
async def test_other_requests_of_a_session_that_is_being_changed(epoch: int) -> None:
    """Its client knows no epoch that comes after this request: it has no answer yet."""
    scene = Scene()
    session = await begun(scene, PARTITIONS)
    changing = await half_changed(scene, session, forgotten=PARTITIONS - 1)
    other = await scene.ask(session_id=session.session_id, epoch=epoch)
    assert other.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert rows(await changing) == [(PARTITIONS - 1, UNKNOWN)]
    assert rows(await scene.ask(named=1, session_id=session.session_id, epoch=2)) == [
        (PARTITIONS - 1, UNKNOWN), (0, UNKNOWN)
    ]  # fmt: skip


async def test_a_session_that_is_closed_while_it_is_changed() -> None:
    scene = Scene()
    session = await begun(scene, PARTITIONS)
    changing = await half_changed(scene, session, forgotten=PARTITIONS - 1)
    scene.sessions.close("/h", session.session_id)
    assert (await changing).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert scene.sessions._partitions == 0


async def test_a_client_that_disconnects_while_its_session_is_changed() -> None:
    scene = Scene()
    session = await begun(scene, PARTITIONS)
    changing = await half_changed(scene, session, forgotten=PARTITIONS - 1)
    changing.cancel()
    await asyncio.wait([changing])
    assert scene.sessions.find("/h", session.session_id) is None
    assert scene.sessions._partitions == 0


async def test_a_new_session_is_counted_in_slices() -> None:
    scene = Scene()
    alone = await turns_until(scene.ask(named=PARTITIONS))
    assert await turns_until(scene.ask(named=PARTITIONS, epoch=0)) > alone + 0.5 * PARTITIONS


async def test_a_refused_isolation_level() -> None:
    task = Scene().ask(named=PARTITIONS, isolation=7)
    assert await turns_until(task) > 2.5 * PARTITIONS
    assert rows(task.result()) == [(number, ErrorCode.UNKNOWN_SERVER_ERROR) for number in range(PARTITIONS)]
