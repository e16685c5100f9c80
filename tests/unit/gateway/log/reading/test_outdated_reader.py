"""A reader whose broker has lost the topic to another one, and does not know it. The admin API is that of the owner."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock

import pytest

from gateway.pulsar.errors import ServiceNotReadyError
from gateway.pulsar.position import Position
from protocol.kafka.batch import parse_header
from protocol.kafka.records import Record, encode_batch
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.fake_pulsar import FakeReader
from tests.unit.gateway.log.log_scene import Scene, answered


def batch_of(producer_id: int) -> memoryview:
    return memoryview(
        encode_batch([Record(0, 1_000, None, b"value", ())], producer_id=producer_id, producer_epoch=0, base_sequence=0)
    )


@pytest.fixture
def outdated(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """The log's reader gets nothing more. New readers are those of the owner."""
    last_position, before = FakeReader.last_position, scene.topic.last

    async def as_known(reader: FakeReader) -> Position:
        return before if reader in old else await last_position(reader)

    old = [*scene.topic.readers]
    for reader in old:
        reader.next_entry = 1_000
    monkeypatch.setattr(FakeReader, "last_position", as_known)
    return scene


async def test_what_a_former_leader_wrote_is_known_before_a_batch_is_checked(outdated: Scene) -> None:
    outdated.topic.write(bytes(batch_of(7)), 1, "the former leader", 0)
    await outdated.log.producers.load()
    assert outdated.log.producers.state.find_duplicate(parse_header(batch_of(7))) is not None
    assert outdated.log.end_offset == 2


async def test_no_batch_is_checked_while_all_readers_are_outdated(
    outdated: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    outdated.topic.write(bytes(batch_of(7)), 1, "the former leader", 0)
    with monkeypatch.context() as patch:
        patch.setattr(outdated.topic, "open_reader", AsyncMock(return_value=outdated.topic.readers[0]))
        with pytest.raises(ServiceNotReadyError):
            await outdated.log.producers.load()
    await outdated.log.producers.load()
    assert outdated.log.producers.state.find_duplicate(parse_header(batch_of(7))) is not None


async def test_what_a_lost_producer_has_written_is_not_sent_again(outdated: Scene) -> None:
    answers = outdated.append(2)
    await let_callbacks_run()
    outdated.producer.write(0)
    outdated.producer.lose()
    assert await answered(answers) == (1, None)
    assert not outdated.producer.sent


async def test_entries_that_brokers_do_not_dispatch_are_not_waited_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Markers that brokers write are never the last entry for readers. They are looked up once."""
    before = scene.topic.last
    asked: list[Position] = []
    entry = scene.topic.entry

    async def counted(topic: str, position: Position) -> Any:
        asked.append(position)
        return await entry(topic, position)

    async def without_markers(reader: FakeReader) -> Position:
        return before

    monkeypatch.setattr(FakeReader, "last_position", without_markers)
    monkeypatch.setattr(scene.topic, "entry", counted)
    for _ in range(3):
        scene.topic.write_marker()
    for _ in range(2):
        await scene.log.end.read_what_others_sent()
    assert scene.log.end_offset == 1, "as at every other gateway"
    assert len(asked) == 1 + 3 + 1
