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


async def test_a_fetch_beyond_the_end_waits_for_what_the_owner_has(outdated: Scene) -> None:
    """It was answered OFFSET_OUT_OF_RANGE: the broker that was asked for its ledgers is not the reader's."""
    outdated.topic.write(bytes(batch_of(7)), 1, "the former leader", 0)
    await outdated.log.end.refresh()
    assert outdated.log.end_offset == 1
    await outdated.log.end.check_owner()
    assert outdated.log.end_offset == 2


async def test_what_an_open_native_transaction_holds_back_is_not_waited_for(scene: Scene) -> None:
    scene.topic.held_back_from = scene.topic.write(b"x", 1, "native", 0, native=True)
    readers = len(scene.topic.readers)
    await scene.log.end.check_owner()
    assert (scene.log.end_offset, len(scene.topic.readers)) == (1, readers)


@pytest.fixture
async def opened_late(outdated: Scene) -> Scene:
    """The topic had another owner when the log was opened."""
    outdated.log.end._is_doubtful = True
    outdated.topic.write(bytes(batch_of(7)), 1, "the former leader", 0)
    return outdated


async def test_the_end_is_not_before_what_the_former_leader_has_acknowledged(
    opened_late: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner is asked once, not for each ListOffsets."""
    asked = AsyncMock(side_effect=opened_late.topic.internal_stats)
    monkeypatch.setattr(opened_late.topic, "internal_stats", asked)
    assert not opened_late.log.end.checked_within(60)
    for _ in range(3):
        await opened_late.log.end.refresh()
    assert (opened_late.log.end_offset, asked.await_count) == (2, 1)
    assert opened_late.log.end.checked_within(60)


async def test_there_is_no_end_while_the_owner_does_not_answer(
    opened_late: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(opened_late.topic, "internal_stats", AsyncMock(side_effect=ServiceNotReadyError("not yet")))
        with pytest.raises(ServiceNotReadyError):
            await opened_late.log.end.refresh(at_most_every_s=60)
    await opened_late.log.end.refresh(at_most_every_s=60)
    assert opened_late.log.end_offset == 2
