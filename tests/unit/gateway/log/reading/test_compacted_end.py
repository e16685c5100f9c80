"""The end of a compacted log, for readers of older data: the last entries may have been removed."""

from __future__ import annotations

import asyncio

import pytest

from gateway.config.limits import MIB
from gateway.pulsar.errors import ConnectionLostError
from gateway.pulsar.position import Position
from protocol.kafka.batch import iter_headers
from protocol.kafka.offset_span import is_gap
from tests.unit.gateway.log.fake_pulsar import FakeReader
from tests.unit.gateway.log.reading.test_catch_up import Scene


async def test_a_batch_without_records_stands_for_what_compaction_took_at_the_end() -> None:
    scene = Scene()
    for _ in range(4):
        scene.write(10, 610)
    scene.compact(*range(2, 4))
    scene.log.ends(40, scene.topic.last)
    offset = 0
    while offset < 40:
        found = await scene.read(offset, MIB)
        offset = found.next_offset
    [*_, (_, header)] = iter_headers(b"".join(bytes(chunk) for chunk in found.chunks))
    assert (header.base_offset, header.last_offset) == (20, 39)
    assert is_gap(header)
    scene.readers.close_all(scene.log)


async def test_everything_compacted_away() -> None:
    scene = Scene()
    scene.write(10, 610)
    scene.compact(0)
    scene.log.ends(10, scene.topic.last)
    found = await scene.read(3, MIB)
    assert found.next_offset == 10
    scene.readers.close_all(scene.log)


async def test_a_compaction_behind_the_readers_back_does_not_stop_it() -> None:
    """It runs while the reader is before the entries that it removes."""
    scene = Scene(reader_budget_bytes=MIB)
    for _ in range(3):
        scene.write(1_000, 610_000)
    scene.log.is_compacted = True
    scene.log.ends(3_000, scene.topic.last)
    first = await scene.read(0, 1)
    assert first.next_offset < 3_000
    await asyncio.sleep(0)
    scene.compact(2)
    offset = first.next_offset
    for _ in range(5_000):
        [reader] = scene.readers._all()
        reader._end_asked_at = 0.0  # a second later
        offset = (await scene.read(offset, 100_000)).next_offset
        if offset == 3_000:
            break
    assert offset == 3_000
    scene.readers.close_all(scene.log)


async def test_what_a_broker_that_lost_the_topic_does_not_have_is_not_compacted_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It names an earlier end. Its readers get no more until they are closed."""
    scene = Scene()
    for _ in range(4):
        scene.write(10, 610)
    scene.compact()
    scene.topic.compacted_to = scene.topic.entries[1][0]
    scene.log.ends(40, scene.topic.last)
    lost_behind = scene.topic.entries[1][0]
    deliver, last_position = FakeReader.deliver, FakeReader.last_position

    def delivers(reader: FakeReader) -> None:
        topic, entries = reader.topic, reader.topic.entries
        topic.entries = [each for each in entries if each[0] <= lost_behind]
        deliver(reader)
        topic.entries = entries

    async def ends(reader: FakeReader) -> Position:
        return lost_behind

    monkeypatch.setattr(FakeReader, "deliver", delivers)
    monkeypatch.setattr(FakeReader, "last_position", ends)
    assert (await scene.read(0, MIB)).next_offset == 20
    assert scene.readers.read(scene.log, 20, MIB, at_least_one=True) is None
    scene.readers.start(scene.log, 20)
    await asyncio.sleep(0.05)
    assert scene.readers.read(scene.log, 20, MIB, at_least_one=True) is None
    monkeypatch.setattr(FakeReader, "deliver", deliver)
    monkeypatch.setattr(FakeReader, "last_position", last_position)
    scene.topic.readers[-1].lose(ConnectionLostError("the broker knows the owner now"))
    await scene.read_all(20, MIB)
    scene.readers.close_all(scene.log)
