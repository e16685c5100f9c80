"""A partition's log between its clients and a Pulsar with unfavourable timing of entries and readers."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from gateway.errors import KafkaError
from gateway.log.entries.decoding import HEAVY_MESSAGES, converted
from gateway.log.entries.log_entry import LogEntry, from_pulsar
from gateway.log.reading import receipt_lookup
from gateway.log.writing.producer_ids import MARK_EVERY_S
from gateway.pulsar.errors import TopicNotFoundError
from gateway.pulsar.reader import Entry
from protocol.kafka.batch import BatchHeader, parse_header
from protocol.kafka.errors import ErrorCode
from protocol.kafka.records import Record, encode_batch
from protocol.pulsar.entry import encode_message
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.fake_pulsar import FakeReader
from tests.unit.gateway.log.log_scene import PLAIN, Scene, answered, append, batch


async def test_what_follows_is_counted_and_served_from_memory(scene: Scene) -> None:
    answers = [scene.append(3)]
    await let_callbacks_run()
    scene.producer.write_and_confirm(0)
    answers.append(scene.append(2))
    await let_callbacks_run()
    scene.producer.write_and_confirm(1)
    assert [await answered(one) for one in answers] == [(1, None), (4, None)]
    assert scene.offsets_read() == [(0, 0), (1, 3), (4, 5)]


@pytest.mark.parametrize("disturbance", ["native", "rollover"])
async def test_behind_a_gap_the_offset_is_read_and_nothing_is_served_twice(scene: Scene, disturbance: str) -> None:
    answers = scene.append(3)
    await let_callbacks_run()
    if disturbance == "native":
        scene.topic.write(bytes(batch(5)), 5, "other", 1)
    else:
        scene.topic.roll_over()
    scene.producer.write_and_confirm(0)
    first = 6 if disturbance == "native" else 1
    assert await answered(answers) == (first, None)
    await let_callbacks_run()
    others = [(1, 5)] if disturbance == "native" else []
    assert scene.offsets_read() == [(0, 0), *others, (first, first + 2)]


async def test_an_entry_that_is_read_before_its_receipt_is_written(scene: Scene) -> None:
    """Otherwise, if the receipt is lost with the connection, the batch would be treated as not written, and sent again.
    """
    answers = scene.append(3)
    await let_callbacks_run()
    position = scene.producer.write(0)
    await scene.log.end.refresh()
    scene.producer.lose()
    assert await answered(answers) == (1, None)
    scene.producer.confirm(0, position)
    await let_callbacks_run()
    assert scene.offsets_read() == [(0, 0), (1, 3)]


@pytest.mark.usefixtures("others_still_write")
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


@pytest.mark.usefixtures("others_still_write")
async def test_the_end_is_known_when_the_broker_has_written_what_it_received(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway died with an entry in flight; its client sends the same batch to this gateway."""
    data = encode_batch([Record(0, 1_000, None, b"value", ())], producer_id=7, producer_epoch=0, base_sequence=0)
    await scene.log.prepare(parse_header(data)._replace(producer_id=8), 1)

    async def one_on_its_way(topic: str) -> Any:
        monkeypatch.undo()
        stats = replace(await scene.topic.internal_stats(topic), pending_adds=1)
        scene.topic.write(bytes(data), 1, "another gateway", 0)
        return stats

    monkeypatch.setattr(scene.topic, "internal_stats", one_on_its_way)
    await scene.log.prepare(parse_header(data), 1)
    assert await answered(await append(scene, 7, 0)) == (1, None)


async def test_a_log_that_cannot_be_read_any_more_is_given_up(scene: Scene) -> None:
    """The offset of an entry after a gap stays unknown to the client: the next log finds the batch as a duplicate."""
    behind_gap = await append(scene, 7, 0)
    scene.topic.delivers = False
    scene.topic.write(bytes(batch(1)), 1, "other", 1)
    position = scene.producer.write(0)
    for reader in scene.topic.readers:
        reader.permits = -1_000_000
    scene.producer.confirm(0, position)
    scene.log._follower.on_reader_closed(TopicNotFoundError("gone"))
    _, error = await answered(behind_gap)
    assert isinstance(error, KafkaError)
    assert scene.log.closed
    with pytest.raises(KafkaError) as refused:
        await append(scene, 7, 1)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_an_answer_that_fails_keeps_no_other_client_from_its_own(scene: Scene) -> None:
    """The offsets of entries after a gap become known together, and one entry has the batches of several clients."""

    def fail(offset: int, error: Exception | None) -> None:
        raise RuntimeError("a defect")

    scene.topic.roll_over()
    scene.topic.delivers = False
    scene.log.append(batch(), PLAIN, 1, fail)
    same_entry = scene.append()
    await let_callbacks_run()
    next_entry = scene.append()
    await let_callbacks_run()
    defects: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: defects.append(context["exception"]))
    for sequence_id in list(scene.producer.sent):
        scene.producer.write_and_confirm(sequence_id)
    scene.topic.readers[-1].deliver()
    assert await answered(same_entry) == (2, None)
    assert await answered(next_entry) == (3, None)
    assert len(defects) == 1


async def test_a_small_batch_does_not_pin_a_large_request(scene: Scene) -> None:
    answers = scene.append(1, frame_bytes=1_000_000)
    await let_callbacks_run()
    scene.producer.write_and_confirm(0)
    assert await answered(answers) == (1, None)
    found = scene.log.reader.read(1, 1 << 20)
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
    await let_callbacks_run()
    answers.append(scene.append(2))
    await let_callbacks_run()
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
    assert scene.log.reader.read(1, 1 << 20) is None, "a consumer that stands here would skip what was passed over"


@pytest.mark.usefixtures("others_still_write")
async def test_a_producer_whose_id_was_just_allocated_needs_no_look_at_the_log(scene: Scene) -> None:
    """Thousands of them may write one batch each."""
    asked = 0
    stats = scene.topic.internal_stats

    async def count(topic: str) -> Any:
        nonlocal asked
        asked += 1
        return await stats(topic)

    def first_batch(producer_id: int, sequence: int = 0) -> BatchHeader:
        records = [Record(0, 1_000, None, b"value", ())]
        return parse_header(
            encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        )

    ids = scene.log._shared.producer_ids
    older = ids.allocate()
    await asyncio.sleep(2 * MARK_EVERY_S)
    await scene.log.prepare(first_batch(1), 1)
    scene.topic.internal_stats = count  # type: ignore[method-assign]
    await asyncio.sleep(2 * MARK_EVERY_S)
    newer = ids.allocate()
    assert scene.log.ready_for(first_batch(newer), 2)
    assert not scene.log.ready_for(first_batch(newer, sequence=5), 2)
    assert not scene.log.ready_for(first_batch(older), 2), "it may have written over another gateway"
    assert not scene.log.ready_for(first_batch(newer + 1), 2), "another gateway may have allocated it"
    await scene.log.prepare(first_batch(newer), 2)
    assert asked == 0
    await scene.log.prepare(first_batch(older), 2)
    assert asked == 1


async def test_native_entries_are_not_converted_to_find_idempotent_producers(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be megabytes to decompress, and have no idempotent batches."""
    for number in range(3):
        scene.topic.write(b"native", 1, "native", number, native=True)
    found: list[Entry] = []
    async def counted(threads: Any, from_entry: Any, entry: Entry, whose: Any) -> LogEntry | None:
        found.append(entry)
        return await converted(threads, from_entry, entry, whose)

    monkeypatch.setattr("gateway.log.writing.producer_scan.converted", counted)
    records = [Record(0, 1_000, None, b"value", ())]
    header = parse_header(encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=0))
    await scene.log.prepare(header, 1)
    assert [entry.position for entry in found] == [scene.topic.entries[0][0]]


@pytest.mark.usefixtures("others_still_write")
async def test_one_look_at_the_log_serves_all_batches_that_came_before_it(scene: Scene) -> None:
    """Thousands of producers may share a connection."""

    def first_batch(producer_id: int) -> BatchHeader:
        records = [Record(0, 1_000, None, b"value", ())]
        return parse_header(encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0))

    await scene.log.prepare(first_batch(1), 1)
    arrived_s = time.monotonic()
    await scene.log.prepare(first_batch(2), 1, arrived_s)
    assert scene.log.ready_for(first_batch(3), 1, arrived_s)
    assert not scene.log.ready_for(first_batch(3), 1, time.monotonic()), "it may have come from another gateway since"
    assert not scene.log.ready_for(first_batch(3), 1)


@pytest.mark.usefixtures("others_still_write")
async def test_the_first_look_at_the_log_serves_all_batches_that_came_before_it(scene: Scene) -> None:
    records = [Record(0, 1_000, None, b"value", ())]
    later = parse_header(encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=5))
    arrived_s = time.monotonic()
    await scene.log.prepare(later, 1, arrived_s)
    assert scene.log.ready_for(later, 1, arrived_s)
    assert not scene.log.ready_for(later, 1, time.monotonic()), "it may have come from another gateway since"


@pytest.mark.parametrize("others", [0, 5])
async def test_what_no_reader_gets_is_looked_up(
    scene: Scene, others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entries are written, but do not arrive."""
    monkeypatch.setattr(receipt_lookup, "LOOK_UP_AFTER_S", 0.01)
    scene.topic.delivers = False
    for reader in scene.topic.readers:
        reader.permits = -1_000_000
    if others:
        scene.topic.write(bytes(batch(others)), others, "transaction", 1)
    else:
        scene.topic.roll_over()
    monkeypatch.setattr(FakeReader, "deliver", lambda reader: None)
    first, second = scene.append(3), scene.append(2)
    await let_callbacks_run()
    for sequence_id in list(scene.producer.sent):
        scene.producer.write_and_confirm(sequence_id)
    assert await answered(first) == (1 + others, None)
    assert await answered(second) == (4 + others, None)
    assert scene.log.end_offset == 6 + others
    if not others:  # else what lies between is not in memory
        assert scene.offsets_read() == [(0, 0), (1, 3), (4, 5)]


async def test_no_more_is_read_than_can_be_converted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def convert(entry: Entry) -> LogEntry | None:
        assert threading.current_thread() is threading.main_thread() or go_on.wait(10)
        return from_pulsar(entry, max_bytes=1 << 20)

    monkeypatch.setattr(scene.log._follower._conversions, "_convert", convert)
    before = scene.log.end_offset
    heavy = b"".join(encode_message(b"", key=None) for _ in range(HEAVY_MESSAGES + 1))
    for number in range(20):
        scene.topic.write(heavy, HEAVY_MESSAGES + 1, "native", number, native=True)
    refresh = asyncio.create_task(scene.log.end.refresh())
    await let_callbacks_run()
    held = scene.topic.readers[-1].next_entry
    assert held < 4
    for _ in range(3):
        scene.log._follower.follow()
        await let_callbacks_run()
    assert scene.topic.readers[-1].next_entry == held
    go_on.set()
    async with asyncio.timeout(10):
        await refresh
    assert scene.log.end_offset == before + 20 * (HEAVY_MESSAGES + 1)


async def test_of_large_messages_few_are_asked_for_at_a_time(scene: Scene) -> None:
    large, before = encode_message(bytes(1 << 20), key=None), scene.log.end_offset
    for number in range(60):
        scene.topic.write(large, 1, "native", number, native=True)
    await scene.log.end.refresh()
    reader = scene.topic.readers[-1]
    assert scene.log.end_offset == before + 60 and reader.permits < 128
    for number in range(100):
        scene.topic.write(large, 1, "native", number, native=True)
        await scene.log.end.refresh()
    assert reader.permits <= scene.log.resources.limits.reader_budget_bytes >> 20
