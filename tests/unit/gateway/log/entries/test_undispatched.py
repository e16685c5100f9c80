"""Entries at the end of a log that brokers do not dispatch, and callers that wait for that end."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any, cast

import pytest

from gateway.log.entries import entry_stream
from gateway.log.entries.undispatched import undispatched_end
from gateway.log.reading import end_refresh
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ConnectionLostError
from gateway.pulsar.position import Position
from tests.unit.gateway.log.fake_pulsar import FakeTopic
from tests.unit.gateway.log.log_scene import Scene, answered, append


@pytest.fixture(autouse=True)
def short_silences(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (end_refresh, entry_stream):
        monkeypatch.setattr(module, "SILENT_S", 0.01)


async def end_behind(topic: FakeTopic, behind: Position) -> int | None:
    return await undispatched_end(cast(PulsarClient, topic), cast(AdminClient, topic), "topic", behind, topic.last)


async def test_only_what_lies_behind_is_looked_at() -> None:
    topic = FakeTopic()
    first = topic.write(b"", 2, "writer", 0)
    topic.write_marker(3)
    topic.roll_over()
    second = topic.write_marker()
    assert await end_behind(topic, first) == 6
    assert await end_behind(topic, second._replace(entry_id=-1)) == 6
    assert await end_behind(topic, Position(-1, -1)) is None
    assert await end_behind(topic, second) is None


async def test_what_counts_no_messages_is_kept_back_too() -> None:
    topic = FakeTopic()
    topic.write(b"", 1, "native", 0, native=True)
    topic.entries[-1][3].num_messages_in_batch = 0
    assert await end_behind(topic, Position(-1, -1)) == 1


async def test_the_end_is_known_behind_them_and_they_are_empty_batches(scene: Scene) -> None:
    for _ in range(20):
        scene.topic.write_marker(3)
    await asyncio.gather(*(scene.log.end.refresh() for _ in range(3)))
    assert scene.log.end_offset == 61
    assert scene.offsets_read() == [(0, 0), (1, 60)]


async def test_records_before_them_are_read_first(scene: Scene) -> None:
    scene.topic.write(b"", 2, "native", 0, native=True)
    scene.topic.write_marker()
    await scene.log.end.refresh()
    assert scene.offsets_read() == [(0, 0), (1, 2), (3, 3)]


async def test_more_offsets_than_one_batch_spans(scene: Scene) -> None:
    scene.topic.write_marker(2**31 - 1)
    scene.topic.write_marker(2**31 - 1)
    await scene.log.end.refresh()
    assert scene.log.end_offset == 2**32 - 1
    assert [last for _, last in scene.offsets_read()] == [0, 2**31 - 1, 2**32 - 2]


async def test_an_idempotent_producer_writes_behind_them(scene: Scene) -> None:
    scene.topic.write_marker()
    await scene.log.end.refresh()
    answers = await append(scene, 7, 0)
    scene.producer.write_and_confirm(0)
    assert await answered(answers) == (2, None)


async def test_producers_are_known_of_a_log_that_ends_with_them(scene: Scene) -> None:
    scene.topic.write_marker()
    assert await scene.log.producers.active() == []
    assert scene.log.end_offset == 2


async def test_a_slow_pulsar_is_asked_less_and_less_often() -> None:
    pauses_s: list[float] = []

    class LateEntry(entry_stream.EntryQueue):
        async def wait(self, seconds: float) -> bool:
            pauses_s.append(seconds)
            return len(pauses_s) == 5

    async def entry_is_late(behind: Position) -> bool:
        return False

    assert await entry_stream._wait_for_one(LateEntry(), Position(-1, -1), entry_is_late)
    assert pauses_s[0] <= 0.01
    assert all(later > 1.5 * earlier for earlier, later in pairwise(pauses_s))


async def test_an_error_that_many_readers_get_does_not_keep_all_their_frames() -> None:
    error = ConnectionLostError("lost")
    depths = []
    for _ in range(3):
        queue = entry_stream.EntryQueue()
        queue.on_reader_closed(error)
        with pytest.raises(ConnectionLostError) as raised:
            await entry_stream._next_entry(queue, Position(-1, -1), cast(Any, None))
        depths.append(len(raised.traceback))
    assert len(set(depths)) == 1
