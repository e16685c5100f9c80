"""Copies that replication brings from another cluster, while the same batches are on their way here."""

from __future__ import annotations

import pytest

from gateway.log.writing.appender import SHARE_ABOVE_IN_FLIGHT
from gateway.pulsar.position import Position
from protocol.kafka.records import Record, encode_batch
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.fake_pulsar import FakeTopic
from tests.unit.gateway.log.log_scene import Scene, answered, append


def copy(topic: FakeTopic, producer_id: int, sequence: int) -> Position:
    """The client went to the other cluster with this batch."""
    records = [Record(0, 1_000, None, b"value", ())]
    data = encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    position = topic.write(bytes(data), 1, "pulsar.repl.another", topic.entry_id)
    topic.entries[-1][3].replicated_from = "another"
    return position


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
