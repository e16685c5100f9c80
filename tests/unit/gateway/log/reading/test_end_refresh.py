"""Reading a log up to the end that Pulsar names: what completes it, what fails it, and how often Pulsar is asked."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from gateway.log.reading import end_refresh
from gateway.pulsar.errors import ClientClosedError, ConnectionLostError, PulsarError, TopicNotFoundError
from gateway.pulsar.position import Position
from protocol.pulsar.pulsar_commands_pb2 import MessageMetadata
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.fake_pulsar import FakeReader, FakeTopic
from tests.unit.gateway.log.log_scene import Scene, batch


async def never(*_: Any, **__: Any) -> None:
    await asyncio.Event().wait()


async def test_receipts_that_reach_the_target_end_a_refresh(scene: Scene) -> None:
    """The reader may be after the target already: then no entry arrives."""
    scene.append()
    await let_callbacks_run()
    position = scene.producer.write(0)
    for reader in scene.topic.readers:
        reader.permits = -1_000_000
    refresh = asyncio.create_task(scene.log.end.refresh())
    await let_callbacks_run()
    assert not refresh.done()
    scene.producer.confirm(0, position)
    await refresh
    assert scene.log.end_offset == 2


@pytest.mark.parametrize("receipts", [1, 40])
async def test_an_entry_whose_offset_decides_those_of_receipts_ends_a_refresh(scene: Scene, receipts: int) -> None:
    """The reader that would get the others goes away: it is lost, or there are so many that it is given up."""
    [reader] = scene.topic.readers
    reader.permits = 0
    scene.topic.write(bytes(batch(1)), 1, "other", 7)
    for number in range(receipts):
        scene.append(1)
        await let_callbacks_run()
        scene.producer.write_and_confirm(number)
    refresh = asyncio.create_task(scene.log.end.refresh())
    await let_callbacks_run()
    reader.permits = 1
    reader.deliver()
    assert scene.log.end_offset == 1 + 1 + receipts
    reader.lose(ConnectionLostError("lost"))
    async with asyncio.timeout(5):
        await refresh


async def test_an_entry_without_an_offset_arrives_only_once(scene: Scene) -> None:
    """Its producer sent it as no message. Later refreshes must not wait for it."""
    topic = scene.topic
    position = topic.write(b"", 1, "native", 0, native=True)
    topic.entries[-1], topic.next_index = (position, cast(int, None), b"", MessageMetadata()), topic.next_index - 1
    for _ in range(3):
        async with asyncio.timeout(5):
            await scene.log.end.refresh()
    assert scene.log.end_offset == 1
    topic.write(bytes(batch(2)), 2, "other", 1)
    await scene.log.end.refresh()
    assert scene.log.end_offset == 3


async def test_a_refresh_fails_when_no_reader_can_be_opened(scene: Scene) -> None:
    scene.topic.write(bytes(batch(1)), 1, "other", 1)
    for reader in scene.topic.readers:
        reader.permits = -1_000_000
    refresh = asyncio.create_task(scene.log.end.refresh())
    await let_callbacks_run()
    scene.log._follower.on_reader_closed(TopicNotFoundError("gone"))
    with pytest.raises(PulsarError):
        await refresh


async def test_readers_that_end_at_once_are_opened_after_pauses(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry that no broker can send ends each connection on which it is sent."""
    monkeypatch.setattr(
        FakeReader, "deliver", lambda reader: reader.closed or reader.lose(ConnectionLostError("lost"))
    )
    scene.topic.write(bytes(batch(1)), 1, "other", 1)
    refresh, opened = asyncio.create_task(scene.log.end.refresh()), len(scene.topic.readers)
    await asyncio.sleep(0.1)
    refresh.cancel()
    assert 1 <= len(scene.topic.readers) - opened <= 2


async def test_a_defect_while_a_reader_is_opened_closes_the_log(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the log would stay open, and never read an entry of other writers again."""
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
    scene.topic.readers[-1].lose(ConnectionLostError("lost"))

    async def fail(*args: Any, **options: Any) -> FakeReader:
        raise KeyError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(FakeTopic, "open_reader", fail)
        scene.topic.write(bytes(batch(1)), 1, "other", 1)
        with pytest.raises(PulsarError):
            await scene.log.end.refresh()
    assert scene.log.closed
    assert isinstance(failures[0]["exception"], KeyError)


async def test_very_many_fetches_ask_for_the_end_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each for what others had written when it came: those that come during a question share the next one."""
    asked, last_position = 0, scene.log._follower.last_position

    async def counted() -> Position:
        nonlocal asked
        asked += 1
        return await last_position()

    monkeypatch.setattr(scene.log._follower, "last_position", counted)
    first = [asyncio.create_task(scene.log.end.refresh_with_others()) for _ in range(100)]
    while not asked:
        await asyncio.sleep(0)
    scene.topic.write(bytes(batch(2)), 2, "other", 1)
    later = [asyncio.create_task(scene.log.end.refresh_with_others()) for _ in range(100)]
    await asyncio.gather(*first, *later)
    assert asked == 2 and scene.log.end_offset == 3


async def test_frequent_requests_for_the_end_get_the_known_one() -> None:
    scene = Scene()
    assert not scene.log.end.checked_within(60)
    await scene.log.end.refresh(at_most_every_s=60)
    known = scene.log.end_offset
    scene.topic.write(bytes(batch(2)), 2, "other", 1)
    assert scene.log.end.checked_within(60)
    await scene.log.end.refresh(at_most_every_s=60)
    assert scene.log.end_offset == known
    await scene.log.end.refresh()
    assert scene.log.end_offset == known + 2
    await scene.log.close()


async def test_an_end_that_could_not_be_read_is_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    with monkeypatch.context() as broken:
        broken.setattr(FakeReader, "last_position", AsyncMock(side_effect=ConnectionLostError("lost")))
        with pytest.raises(ConnectionLostError):
            await scene.log.end.refresh(at_most_every_s=60)
    assert not scene.log.end.checked_within(60)
    scene.topic.write(bytes(batch(2)), 2, "other", 1)
    await scene.log.end.refresh(at_most_every_s=60)
    assert scene.log.end_offset == 2
    await scene.log.close()


async def test_waiting_for_the_end_of_a_silent_log_fails_when_it_is_closed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the meantime the gateway checks whether brokers do not dispatch the rest."""
    monkeypatch.setattr(end_refresh, "SILENT_S", 0.01)
    asked = asyncio.Event()

    async def unanswered(topic: str) -> None:
        asked.set()
        await never()

    monkeypatch.setattr(scene.topic, "internal_stats", unanswered)
    scene.topic.readers[-1].next_entry = 1_000  # the broker has lost it, and does not say so
    scene.topic.write(bytes(batch(2)), 2, "other", 1)
    refresh = asyncio.create_task(scene.log.end.refresh())
    await asked.wait()
    await scene.log.close()
    with pytest.raises(ClientClosedError):
        await refresh


async def test_a_closed_log_reads_nothing_more(scene: Scene) -> None:
    await scene.log.close()
    await let_callbacks_run()
    with pytest.raises(PulsarError):
        await scene.log.end.refresh()
    assert all(reader.closed for reader in scene.topic.readers)


async def test_a_log_that_is_closed_while_its_reader_is_opened_fails_its_refresh(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With an error that fetches expect: another one fails their other partitions, too."""
    scene = Scene()
    monkeypatch.setattr(scene.topic, "open_reader", never)
    refresh = asyncio.create_task(scene.log.end.refresh())
    await let_callbacks_run()
    await scene.log.close()
    with pytest.raises(ClientClosedError):
        await refresh


async def test_a_log_that_is_closed_while_pulsar_is_asked_for_its_end_fails_its_refresh(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pulsar names an entry that no reader will read any more."""
    asked, answer = asyncio.Event(), asyncio.Event()
    last_position = FakeReader.last_position

    async def late(reader: FakeReader) -> Position:
        asked.set()
        await answer.wait()
        return await last_position(reader)

    monkeypatch.setattr(FakeReader, "last_position", late)
    scene.topic.readers[-1].permits = -1_000_000
    scene.topic.write(bytes(batch(2)), 2, "other", 1)
    refresh = asyncio.create_task(scene.log.end.refresh())
    await asked.wait()
    await scene.log.close()
    answer.set()
    await let_callbacks_run()
    assert refresh.done()
    with pytest.raises(ClientClosedError):
        await refresh


async def test_a_refresh_does_not_wait_for_entries_that_later_ones_ask_for(scene: Scene) -> None:
    """Under constant requests, while others write, none of them was ever answered."""
    reader = scene.topic.readers[-1]
    reader.permits = -1_000_000
    scene.topic.write(bytes(batch(1)), 1, "other", 1)
    first = asyncio.create_task(scene.log.end.refresh())
    await let_callbacks_run()
    scene.topic.write(bytes(batch(1)), 1, "other", 2)
    second = asyncio.create_task(scene.log.end.refresh())
    await let_callbacks_run()
    for refresh, end_offset in ((first, 2), (second, 3)):
        assert not refresh.done()
        scene.log._follower.on_entry(scene.topic.entry_at(reader.next_entry))
        reader.next_entry += 1
        await let_callbacks_run()
        assert refresh.done()
        await refresh
        assert scene.log.end_offset == end_offset
    assert scene.log._target.position is None


async def test_callers_that_leave_are_forgotten(scene: Scene) -> None:
    scene.topic.readers[-1].permits = -1_000_000
    scene.topic.write(bytes(batch(1)), 1, "other", 1)
    for _ in range(10):
        refresh = asyncio.create_task(scene.log.end.refresh())
        await let_callbacks_run()
        refresh.cancel()
        await let_callbacks_run()
    assert len(scene.log._target._waiting) == 1
