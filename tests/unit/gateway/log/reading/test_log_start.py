"""The start of a log while others write, and retention deletes."""

from __future__ import annotations

import asyncio
from unittest.mock import AsyncMock

import pytest

from gateway.log.bounds.start_search import FirstOffset
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.log_scene import PLAIN, Scene


@pytest.fixture
async def empty(no_settling: None) -> Scene:
    scene = Scene()
    await scene.log.prepare(PLAIN, 1)
    return scene


async def test_what_is_written_while_nothing_is_found_stays_readable(empty: Scene) -> None:
    async def nothing() -> None:
        empty.append()
        await let_callbacks_run()
        empty.producer.write_and_confirm(0)
        await empty.log.end.refresh()

    empty.log.start._search.run = nothing  # type: ignore[method-assign]
    await empty.log.start.refresh(at_most_every_s=0)
    assert (empty.log.start.offset, empty.log.end_offset) == (0, 1)


@pytest.mark.parametrize(("found", "expected"), [(None, 1), (FirstOffset(1, True), 1), (FirstOffset(0, True), 0)])
async def test_waiters_for_deleted_records_are_woken(
    scene: Scene, found: FirstOffset | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[None] = []
    monkeypatch.setattr(scene.log.waiters, "wake", lambda: woken.append(None))
    monkeypatch.setattr(scene.log.start._search, "run", AsyncMock(return_value=found))
    await scene.log.start.refresh(at_most_every_s=0)
    assert scene.log.start.offset == expected
    assert len(woken) == expected


async def test_the_start_does_not_fall_back_to_an_end_that_is_known_late(scene: Scene) -> None:
    scene.log.start.offset = 5  # raised by another gateway, whose records are not known here yet
    scene.log.start._search.run = AsyncMock(return_value=None)  # type: ignore[method-assign]
    await scene.log.start.refresh(at_most_every_s=0)
    assert scene.log.start.offset == 5


async def test_the_old_start_is_not_returned_while_it_is_read_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = asyncio.Event()

    async def slowly() -> FirstOffset:
        await answer.wait()
        return FirstOffset(1, True)

    monkeypatch.setattr(scene.log.start._search, "run", slowly)

    async def told() -> int:
        await scene.log.start.refresh()
        return scene.log.start.offset

    first, second = asyncio.create_task(told()), asyncio.create_task(told())
    await let_callbacks_run()
    third = asyncio.create_task(told())
    await let_callbacks_run()
    assert not scene.log.start.checked_within(15)
    answer.set()
    assert [await first, await second, await third] == [1, 1, 1]
    assert scene.log.start.checked_within(15)


async def test_a_search_that_failed_says_nothing_of_the_start(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    search = AsyncMock(side_effect=[TimeoutError, FirstOffset(1, True)])
    monkeypatch.setattr(scene.log.start._search, "run", search)
    with pytest.raises(TimeoutError):
        await scene.log.start.refresh()
    assert not scene.log.start.checked_within(15)
    await scene.log.start.refresh()
    assert scene.log.start.offset == 1


async def test_a_start_that_retention_moved_while_records_are_deleted_does_not_go_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()
    put_properties = scene.topic.put_properties

    async def slowly(topic: str, properties: dict[str, str]) -> None:
        asked.set()
        await answer.wait()
        await put_properties(topic, properties)

    monkeypatch.setattr(scene.topic, "put_properties", slowly)
    deleting = asyncio.create_task(scene.log.start.delete_before(1))
    await asked.wait()
    monkeypatch.setattr(scene.log.start._search, "run", AsyncMock(return_value=FirstOffset(5, True)))
    await scene.log.start.refresh(at_most_every_s=0)
    answer.set()
    await deleting
    assert (scene.log.start.offset, scene.log.start.at_first_entry) == (5, True)
