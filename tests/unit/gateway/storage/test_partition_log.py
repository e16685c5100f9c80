"""A partition's log between its clients and a Pulsar that loses producers and readers at the worst moments."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from gateway.config import Limits
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ConnectionLostError, PulsarError, TopicNotFoundError
from gateway.pulsar.position import Position
from gateway.storage import opening, writer
from gateway.storage.errors import KafkaError
from gateway.storage.opening import LogBounds
from gateway.storage.partition_log import PartitionLog
from gateway.storage.shared import Shared
from protocol.kafka.batch import iter_headers, parse_header
from protocol.kafka.errors import ErrorCode
from protocol.kafka.records import Record, encode_batch
from tests.unit.gateway.storage.fake_pulsar import FakeProducer, FakeReader, FakeTopic

Answers = list[tuple[int, Exception | None]]


@pytest.fixture(autouse=True)
def no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "SETTLE_S", 0)
    monkeypatch.setattr(opening, "SETTLE_S", 0)


def batch(count: int = 1, frame_bytes: int = 0) -> memoryview:
    data = encode_batch([Record(delta, 1_000, None, b"value", ()) for delta in range(count)])
    return memoryview(data + bytearray(frame_bytes))[: len(data)]


PLAIN = parse_header(batch())


class Scene:
    """A log on a fake topic."""

    def __init__(self) -> None:
        self.topic = FakeTopic()
        limits = Limits(refresh_timeout_ms=2_000)
        shared = Shared(cast(PulsarClient, self.topic), cast(AdminClient, self.topic), limits, Metrics())
        self.log = PartitionLog("topic", shared, LogBounds(Position(-1, -1), 0, 0))

    @property
    def producer(self) -> FakeProducer:
        return self.topic.producers[-1]

    def append(self, count: int = 1, frame_bytes: int = 0) -> Answers:
        answers: Answers = []
        data = batch(count, frame_bytes)
        self.log.append(data, parse_header(data), 1, lambda offset, error: answers.append((offset, error)))
        return answers

    def offsets_read(self) -> list[tuple[int, int]]:
        found = self.log.read(0, 1 << 20)
        assert found is not None
        return [
            (header.base_offset, header.last_offset) for chunk in found[0] for _, header in iter_headers(bytes(chunk))
        ]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def answered(answers: Answers) -> tuple[int, Exception | None]:
    async with asyncio.timeout(5):
        while not answers:
            await asyncio.sleep(0.01)
    assert len(answers) == 1
    return answers[0]


@pytest.fixture
async def scene() -> Scene:
    scene = Scene()
    await scene.log.prepare(PLAIN, 1)
    scene.topic.write(bytes(batch(1)), 1, "other", 0)
    await scene.log.end.refresh()
    assert scene.log.end_offset == 1
    return scene


async def test_what_follows_is_counted_and_served_from_memory(scene: Scene) -> None:
    answers = [scene.append(3)]
    await settle()
    scene.producer.write_and_confirm(0)
    answers.append(scene.append(2))
    await settle()
    scene.producer.write_and_confirm(1)
    assert [await answered(one) for one in answers] == [(1, None), (4, None)]
    assert scene.offsets_read() == [(0, 0), (1, 3), (4, 5)]


@pytest.mark.parametrize("disturbance", ["native", "rollover"])
async def test_behind_a_gap_the_offset_is_read_and_nothing_is_served_twice(scene: Scene, disturbance: str) -> None:
    answers = scene.append(3)
    await settle()
    if disturbance == "native":
        scene.topic.write(bytes(batch(5)), 5, "other", 1)
    else:
        scene.topic.roll_over()
    scene.producer.write_and_confirm(0)
    first = 6 if disturbance == "native" else 1
    assert await answered(answers) == (first, None)
    await settle()
    others = [(1, 5)] if disturbance == "native" else []
    assert scene.offsets_read() == [(0, 0), *others, (first, first + 2)]


async def test_an_entry_that_is_read_before_its_receipt_is_written(scene: Scene) -> None:
    """Else, if the receipt is lost with the connection, it would be taken for not written, and sent again."""
    answers = scene.append(3)
    await settle()
    position = scene.producer.write(0)
    await scene.log.end.refresh()
    scene.producer.lose()
    assert await answered(answers) == (1, None)
    scene.producer.confirm(0, position)
    await settle()
    assert scene.offsets_read() == [(0, 0), (1, 3)]


async def test_a_lost_producer_leaves_no_doubt(scene: Scene) -> None:
    first = scene.append(3)
    await settle()
    lost = scene.producer
    lost.write(0)
    lost.sent[1] = (b"", 0)  # sent, and never written
    lost.lose()
    assert await answered(first) == (1, None)
    second = scene.append(1)
    await scene.log.prepare(PLAIN, 1)
    await settle()
    assert scene.producer is not lost
    scene.producer.write_and_confirm(1)
    assert await answered(second) == (4, None)


async def test_what_was_not_written_is_refused_as_retriable(scene: Scene) -> None:
    answers = scene.append(3)
    await settle()
    scene.producer.lose()
    offset, error = await answered(answers)
    assert offset == -1
    assert isinstance(error, KafkaError)


async def append(scene: Scene, producer_id: int, sequence: int, source: int = 1) -> Answers:
    answers: Answers = []
    data = encode_batch(
        [Record(0, 1_000, None, b"value", ())], producer_id=producer_id, producer_epoch=0, base_sequence=sequence
    )
    header = parse_header(data)
    scene.log.append(memoryview(data), header, source, lambda offset, error: answers.append((offset, error)))
    await settle()
    return answers


async def test_what_waits_behind_a_refused_batch_of_its_producer_is_not_written(scene: Scene) -> None:
    """Its client would take the later sequence's acknowledgement for the refused one's as well."""
    in_flight = [await append(scene, 7, 0), await append(scene, 7, 1)]
    follower, other = await append(scene, 7, 2), await append(scene, 8, 0)
    assert len(scene.producer.sent) == len(in_flight)
    scene.producer.lose()
    for refused in (*in_flight, follower):
        assert isinstance((await answered(refused))[1], KafkaError)
    with pytest.raises(KafkaError) as out_of_order:
        await append(scene, 7, 3)
    assert out_of_order.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    again = await append(scene, 7, 0)
    scene.producer.write_and_confirm(2)
    scene.producer.write_and_confirm(3)
    assert [await answered(answers) for answers in (other, again)] == [(1, None), (2, None)]
    assert scene.log.end_offset == 3


async def test_a_repeated_batch_shares_the_fate_of_the_one_in_flight(scene: Scene) -> None:
    first = await append(scene, 7, 0)
    again = await append(scene, 7, 0, source=2)
    assert not again
    scene.producer.lose()
    for answers in (first, again):
        assert isinstance((await answered(answers))[1], KafkaError)


async def test_a_batch_that_another_gateway_wrote_is_a_duplicate_for_a_client_that_moves_here(scene: Scene) -> None:
    data = encode_batch([Record(0, 1_000, None, b"value", ())], producer_id=7, producer_epoch=0, base_sequence=0)
    await scene.log.prepare(parse_header(data)._replace(producer_id=8), 1)
    scene.topic.write(bytes(data), 1, "another gateway", 0)
    assert not scene.log.ready_for(parse_header(data), 1)
    await scene.log.prepare(parse_header(data), 1)
    assert await answered(await append(scene, 7, 0)) == (1, None)
    assert scene.producer.sent == {}
    assert scene.log.ready_for(parse_header(data), 1)
    assert not scene.log.ready_for(parse_header(data), 2)


async def test_the_end_is_known_when_the_broker_has_written_what_it_received(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway died and left an entry on its way; its client comes here with the same batch."""
    data = encode_batch([Record(0, 1_000, None, b"value", ())], producer_id=7, producer_epoch=0, base_sequence=0)
    await scene.log.prepare(parse_header(data)._replace(producer_id=8), 1)

    async def one_on_its_way(topic: str) -> Any:
        monkeypatch.undo()
        stats = await scene.topic.internal_stats(topic)
        stats.pending_adds = 1
        scene.topic.write(bytes(data), 1, "another gateway", 0)
        return stats

    monkeypatch.setattr(scene.topic, "internal_stats", one_on_its_way)
    await scene.log.prepare(parse_header(data), 1)
    assert await answered(await append(scene, 7, 0)) == (1, None)


async def test_a_log_that_cannot_be_read_any_more_is_given_up(scene: Scene) -> None:
    """What was written behind a gap keeps its offset to itself: the next log knows it as a duplicate."""
    behind_gap = await append(scene, 7, 0)
    scene.topic.delivers = False
    scene.topic.write(bytes(batch(1)), 1, "other", 1)
    position = scene.producer.write(0)
    for reader in scene.topic.readers:
        reader.permits = -1_000_000
    scene.producer.confirm(0, position)
    scene.log.reader_failed(TopicNotFoundError("gone"))
    _, error = await answered(behind_gap)
    assert isinstance(error, KafkaError)
    assert scene.log.closed
    with pytest.raises(KafkaError) as refused:
        await append(scene, 7, 1)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_new_producer_that_is_lost_while_the_log_is_read_is_not_used(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = scene.append()
    await settle()

    async def lose_new_producer(topic: str) -> Any:
        monkeypatch.undo()
        scene.producer.lose()
        return await scene.topic.internal_stats(topic)

    monkeypatch.setattr(scene.topic, "internal_stats", lose_new_producer)
    scene.producer.lose()
    await answered(first)
    await settle()
    await scene.log.prepare(PLAIN, 1)
    second = scene.append()
    await settle()
    assert not scene.producer.closed
    scene.producer.write_and_confirm(1)
    assert await answered(second) == (1, None)


async def test_a_new_producer_is_closed_when_the_log_cannot_be_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the lost one's name, which the next attempt needs."""
    monkeypatch.setattr(writer, "RETRY_S", 0)
    answers = scene.append()
    await settle()

    async def fail(topic: str) -> Any:
        monkeypatch.undo()
        raise ConnectionLostError("no statistics")

    monkeypatch.setattr(scene.topic, "internal_stats", fail)
    scene.producer.lose()
    await answered(answers)
    await settle()
    assert [producer.closed for producer in scene.topic.producers] == [True, True, False]


async def test_a_batch_for_a_log_that_lost_its_idle_producer_opens_one(scene: Scene) -> None:
    scene.producer.lose()
    await settle()
    answers = scene.append()
    async with asyncio.timeout(5):
        while len(scene.topic.producers) < 2 or not scene.producer.sent:
            await asyncio.sleep(0.01)
    scene.producer.write_and_confirm(0)
    assert await answered(answers) == (1, None)


async def test_queued_batches_fail_when_no_producer_can_be_had(scene: Scene) -> None:
    scene.producer.lose()
    failure = TopicNotFoundError("gone")
    scene.topic.open_failures.append(failure)
    assert await answered(scene.append()) == (-1, failure)


async def test_closing_answers_what_is_queued_in_flight_and_behind_a_gap(scene: Scene) -> None:
    scene.topic.delivers = False
    behind_gap = scene.append()
    await settle()
    scene.topic.write(bytes(batch(1)), 1, "other", 1)
    position = scene.producer.write(0)
    for reader in scene.topic.readers:
        reader.permits = -1_000_000
    scene.producer.confirm(0, position)
    in_flight = scene.append()
    await settle()
    scene.producer.connection.writable = False
    queued = scene.append()
    await scene.log.close()
    for answers in (behind_gap, in_flight, queued):
        offset, error = await answered(answers)
        assert offset == -1
        assert isinstance(error, KafkaError)


async def test_receipts_that_reach_the_target_end_a_refresh(scene: Scene) -> None:
    """The reader may stand behind the target already: then nothing comes from it."""
    scene.append()
    await settle()
    position = scene.producer.write(0)
    for reader in scene.topic.readers:
        reader.permits = -1_000_000
    refresh = asyncio.create_task(scene.log.end.refresh())
    await settle()
    assert not refresh.done()
    scene.producer.confirm(0, position)
    await refresh
    assert scene.log.end_offset == 2


async def test_a_refresh_hears_of_a_reader_that_cannot_be_had(scene: Scene) -> None:
    scene.topic.write(bytes(batch(1)), 1, "other", 1)
    for reader in scene.topic.readers:
        reader.permits = -1_000_000
    refresh = asyncio.create_task(scene.log.end.refresh())
    await settle()
    scene.log.reader_failed(TopicNotFoundError("gone"))
    with pytest.raises(PulsarError):
        await refresh


async def test_who_asks_for_the_end_often_is_told_what_is_known() -> None:
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


async def test_an_end_that_could_not_be_told_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_a_closed_log_reads_nothing_more(scene: Scene) -> None:
    await scene.log.close()
    await settle()
    with pytest.raises(PulsarError):
        await scene.log.end.refresh()
    assert all(reader.closed for reader in scene.topic.readers)


async def test_a_small_batch_does_not_pin_a_large_request(scene: Scene) -> None:
    answers = scene.append(1, frame_bytes=1_000_000)
    await settle()
    scene.producer.write_and_confirm(0)
    assert await answered(answers) == (1, None)
    found = scene.log.read(1, 1 << 20)
    assert found is not None
    chunk = found[0][0]
    assert memoryview(chunk.obj if isinstance(chunk, memoryview) else chunk).nbytes == len(chunk)


async def test_a_reader_that_brings_nothing_is_replaced(scene: Scene) -> None:
    scene.topic.readers[-1].next_entry = 1_000  # the broker has lost it, and does not say so
    scene.topic.write(bytes(batch(2)), 2, "other", 1)
    with pytest.raises(TimeoutError):
        await scene.log.end.refresh()
    await scene.log.end.refresh()
    assert scene.log.end_offset == 3


@pytest.mark.parametrize(("passed_over", "expected"), [(1, [1, 4]), (2, [None, None])])
async def test_entries_that_the_reader_passes_over(scene: Scene, passed_over: int, expected: list[int | None]) -> None:
    """Pulsar may place a reader behind what is written while it is opened."""
    scene.topic.roll_over()
    scene.topic.delivers = False
    answers = [scene.append(3)]
    await settle()
    answers.append(scene.append(2))
    await settle()
    positions = [scene.producer.write(number) for number in range(2)]
    scene.topic.readers[-1].next_entry += passed_over
    for number, position in enumerate(positions):
        scene.producer.confirm(number, position)
    if passed_over == 2:
        scene.topic.roll_over()
        scene.topic.write(bytes(batch(1)), 1, "other", 1)
    scene.topic.readers[-1].deliver()
    found = [await answered(one) for one in answers]
    assert [offset if error is None else None for offset, error in found] == expected
    assert scene.log.closed is (passed_over == 2)
    assert scene.log.read(1, 1 << 20) is None, "a consumer that stands here would skip what was passed over"
