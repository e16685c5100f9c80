"""Copies that replication brings from another cluster, while the same batches are on their way here."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import AsyncMock

import pytest

from gateway.errors import KafkaError
from gateway.log.reading import receipt_lookup
from gateway.log.writing import known_producers
from gateway.log.writing.appender import SHARE_ABOVE_IN_FLIGHT
from gateway.log.writing.producer_scan import read_tail
from gateway.pulsar.errors import ConnectionLostError
from gateway.pulsar.position import Position
from protocol.kafka.batch import parse_header
from protocol.kafka.records import Record, encode_batch
from protocol.pulsar.entry import encode_message
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.fake_pulsar import FakeTopic
from tests.unit.gateway.log.log_scene import Scene, answered, append, batch


def copy(topic: FakeTopic, producer_id: int, sequence: int) -> Position:
    """The client went to the other cluster with this batch."""
    records = [Record(0, 1_000, None, b"value", ())]
    data = encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    position = topic.write(bytes(data), 1, "pulsar.repl.another", topic.entry_id)
    topic.entries[-1][3].replicated_from = "another"
    return position


async def prepare(scene: Scene, producer_id: int, sequence: int) -> None:
    """The batch comes over a new connection."""
    records = [Record(0, 1_000, None, b"value", ())]
    data = encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    await scene.log.prepare(parse_header(data), 2, time.monotonic())


@pytest.fixture
async def busy(scene: Scene) -> Scene:
    """So many entries are in flight that further batches wait."""
    await scene.log.producers.load()
    for _ in range(SHARE_ABOVE_IN_FLIGHT):
        scene.append()
        await let_callbacks_run()
    return scene


async def test_what_waits_here_is_not_sent_when_a_copy_came(busy: Scene) -> None:
    waiting = [await append(busy, 7, sequence) for sequence in range(3)]
    again = await append(busy, 7, 1, source=2)
    other = busy.append()
    for sequence in (0, 1):
        copy(busy.topic, 7, sequence)
    await busy.log.end.refresh()
    assert [await answered(each) for each in (waiting[0], waiting[1], again)] == [(1, None), (2, None), (2, None)]
    producer = busy.producer
    for sequence_id in range(SHARE_ABOVE_IN_FLIGHT):
        producer.write_and_confirm(sequence_id)
    assert producer.sent[SHARE_ABOVE_IN_FLIGHT][1] == 2, "the third one, and the one of no producer"
    producer.write_and_confirm(SHARE_ABOVE_IN_FLIGHT)
    assert [await answered(each) for each in (waiting[2], other)] == [(5, None), (6, None)]
    assert await answered(await append(busy, 7, 0)) == (1, None)


async def test_what_was_sent_keeps_its_own_offset(busy: Scene) -> None:
    """Both are in the log then. The broker may still refuse it: then the client sends it again, and gets the copy's."""
    producer = busy.producer
    producer.write_and_confirm(0)
    sent = await append(busy, 7, 0)
    copy(busy.topic, 7, 0)
    await busy.log.end.refresh()
    assert not sent
    for sequence_id in range(1, SHARE_ABOVE_IN_FLIGHT + 1):
        producer.write_and_confirm(sequence_id)
    assert await answered(sent) == (4, None)


async def test_copies_that_the_reader_missed_are_read_before_batches_are_checked(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry of ours was looked up for its receipt, as the reader got nothing: the log's end passes over the copies.
    The client that sent them to the other cluster comes here, with the last one again and with the next."""
    monkeypatch.setattr(receipt_lookup, "LOOK_UP_AFTER_S", 0.01)
    await scene.log.producers.load()
    for reader in scene.topic.readers:
        reader.permits = -1_000_000
    copy(scene.topic, 7, 0)
    copy(scene.topic, 7, 1)
    own = scene.append()
    await let_callbacks_run()
    scene.producer.write_and_confirm(0)
    assert await answered(own) == (3, None)
    await prepare(scene, 7, 1)
    assert await answered(await append(scene, 7, 1, source=2)) == (2, None)
    await append(scene, 7, 2, source=2)
    assert scene.topic.last.entry_id == 3, "nothing was written again"


async def check_the_copy_of_producer_7_is_known(scene: Scene, offset: int) -> None:
    end = scene.topic.last
    await prepare(scene, 7, 0)
    assert await answered(await append(scene, 7, 0, source=2)) == (offset, None)
    assert scene.topic.last == end


async def test_copies_that_the_reader_skipped_are_read(scene: Scene) -> None:
    await scene.log.producers.load()
    reader = scene.topic.readers[0]
    reader.permits = 0
    copy(scene.topic, 7, 0)
    own = scene.append()
    await let_callbacks_run()
    scene.producer.write_and_confirm(0)
    scene.topic.write(bytes(batch(1)), 1, "native", 0, native=True)
    reader.next_entry, reader.permits = reader.next_entry + 2, 1
    reader.deliver()
    assert await answered(own) == (2, None)
    await check_the_copy_of_producer_7_is_known(scene, 1)


async def test_copies_that_were_held_back_are_read(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log's end passes over entries of this gateway when the native transaction before them ends."""
    monkeypatch.setattr(receipt_lookup, "LOOK_UP_AFTER_S", 0.01)
    scene.topic.cursors = ["pulsar.repl.another"]
    await scene.log.producers.load()
    scene.topic.held_back_from = scene.topic.write(encode_message(b"native"), 1, "native", 1, native=True)
    copy(scene.topic, 7, 0)
    own = scene.append()
    await let_callbacks_run()
    scene.producer.write_and_confirm(0)
    assert await answered(own) == (3, None)
    scene.topic.release()
    await check_the_copy_of_producer_7_is_known(scene, 2)


async def test_no_batch_is_checked_before_missed_entries_are_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch was prepared before, and waited for other partitions of its request."""
    await scene.log.producers.load()
    scene.log.producers.missed()
    with pytest.raises(KafkaError):
        await append(scene, 7, 0)
    with monkeypatch.context() as patch:
        patch.setattr(scene.topic, "internal_stats", AsyncMock(side_effect=ConnectionLostError("lost")))
        with pytest.raises(ConnectionLostError):
            await scene.log.producers.load()
    with pytest.raises(KafkaError):
        await append(scene, 7, 0)
    await scene.log.producers.load()
    await append(scene, 7, 0)


async def test_the_tail_is_not_read_without_end_while_entries_are_missed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read_and_miss(*arguments: Any) -> None:
        await read_tail(*arguments)
        scene.log.producers.missed()

    with monkeypatch.context() as patch:
        patch.setattr(known_producers, "read_tail", read_and_miss)
        with pytest.raises(TimeoutError, match="missed faster"):
            await scene.log.producers.load()
    assert not scene.log.producers.loaded
    await scene.log.producers.load()
    assert scene.log.producers.loaded


async def test_what_is_missed_while_the_tail_is_read_is_read_too(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    tails: list[Any] = []

    async def read_and_miss(*arguments: Any) -> None:
        tails.append(arguments)
        await read_tail(*arguments)
        if len(tails) == 1:
            copy(scene.topic, 7, 0)
            for reader in scene.topic.readers:
                reader.next_entry = len(scene.topic.entries)
            scene.log._end.on_entry(scene.topic.last, scene.log.end_offset, scene.log.end_offset + 1)
            scene.log.producers.missed()

    monkeypatch.setattr(known_producers, "read_tail", read_and_miss)
    await scene.log.producers.load()
    assert len(tails) == 2
    await check_the_copy_of_producer_7_is_known(scene, 1)
