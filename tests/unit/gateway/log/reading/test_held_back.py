"""What brokers hold back because an open native transaction precedes it: it is written, and has offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from gateway.log.bounds.log_bounds import read_bounds
from gateway.log.bounds.start_search import StartSearch
from gateway.log.entries import entry_stream
from gateway.log.entries.stored_entries import NotReturnedError
from gateway.log.reading import held_back as module
from gateway.log.reading import receipt_lookup
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.admin.topics import StoredContent
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ConnectionLostError, ServiceNotReadyError
from gateway.pulsar.position import Position
from protocol.kafka.batch import BatchHeader, parse_header
from protocol.kafka.records import Record, encode_batch
from protocol.kafka.transaction_marker import MarkerType, TransactionMarker, encode_marker
from protocol.pulsar.entry import encode_message
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.fake_pulsar import FakeTopic
from tests.unit.gateway.log.log_scene import Scene, answered, append

NATIVE = encode_message(b"native")


@pytest.fixture
async def held_back(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A log of one record, then two of an open native transaction."""
    monkeypatch.setattr(receipt_lookup, "LOOK_UP_AFTER_S", 0.01)
    scene.topic.held_back_from = scene.topic.write(NATIVE, 1, "native", 1, native=True)
    scene.topic.write(NATIVE, 1, "native", 2, native=True)
    return scene


async def written(scene: Scene, count: int) -> int:
    answers = scene.append(count)
    await let_callbacks_run()
    scene.producer.write_and_confirm(max(scene.producer.sent))
    offset, error = await answered(answers)
    assert error is None
    return offset


async def test_writes_get_offsets_and_readers_wait(held_back: Scene) -> None:
    assert [await written(held_back, count) for count in (3, 2)] == [3, 6]
    await held_back.log.end.refresh()
    assert (held_back.log.end_offset, held_back.log.written_offset) == (1, 8)
    assert held_back.offsets_read() == [(0, 0)]
    held_back.topic.release()
    await held_back.log.end.refresh()
    assert (held_back.log.end_offset, held_back.log.written_offset) == (8, 8)


async def test_the_end_jumps_over_what_was_written_behind_it(held_back: Scene) -> None:
    """The reader that would get that is lost: nobody waits for it."""
    assert await written(held_back, 3) == 3
    reader = held_back.topic.readers[-1]
    reader.permits = 0
    held_back.topic.held_back_from = None
    refresh = asyncio.create_task(held_back.log.end.refresh())
    await let_callbacks_run()
    reader.permits = 2
    reader.deliver()
    assert held_back.log.end_offset == 6
    reader.lose(ConnectionLostError("lost"))
    async with asyncio.timeout(5):
        await refresh


async def test_what_is_written_after_it_follows(held_back: Scene) -> None:
    """Also if nobody has read the log since the transaction ended."""
    assert await written(held_back, 3) == 3
    held_back.topic.release()
    assert await written(held_back, 2) == 6
    await held_back.log.end.refresh()
    assert held_back.log.end_offset == 8
    assert await written(held_back, 1) == 8
    assert held_back.log.end_offset == 9


async def test_transactions_of_kafka_behind_it_are_read_again(held_back: Scene) -> None:
    assert await written(held_back, 3) == 3
    held_back.topic.release()
    await held_back.log.end.refresh()
    await held_back.log.transactions.prepare()
    assert held_back.log.transactions.last_stable_offset == held_back.log.end_offset == 6


async def test_a_lost_producer_has_written_what_is_held_back(held_back: Scene) -> None:
    """Refused, its batches would be sent again, and be in the log twice."""
    await held_back.log.producers.load()
    answers = await append(held_back, 1, 0)
    await let_callbacks_run()
    lost = held_back.producer
    for sequence_id in list(lost.sent):
        lost.write(sequence_id)
    lost.lose()
    assert await answered(answers) == (3, None)


async def test_another_leader_knows_what_is_held_back(held_back: Scene) -> None:
    held_back.topic.write(idempotent(1, 0), 1, "another gateway", 0)
    held_back.topic.write(NATIVE, 1, "native", 3, native=True)
    await held_back.log.producers.load()
    assert held_back.log.producers.state.find_duplicate(header(1, 0)) is not None
    assert held_back.log.written_offset == 5
    assert held_back.log.end_offset == 1
    assert await written(held_back, 1) == 5, "without a lookup, which takes time"


def header(producer_id: int, sequence: int) -> BatchHeader:
    return parse_header(idempotent(producer_id, sequence))


def idempotent(producer_id: int, sequence: int) -> bytes:
    records = [Record(0, 1_000, None, b"value", ())]
    return bytes(encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence))


@pytest.mark.parametrize("values", [[b"all"], [b"all", b"of them"]])
@pytest.mark.parametrize("ends", ["open", "aborted"])
@pytest.mark.parametrize("is_closed", [True, False])
async def test_a_log_of_which_no_reader_gets_anything(
    monkeypatch: pytest.MonkeyPatch, values: Sequence[bytes], ends: str, *, is_closed: bool
) -> None:
    """Pulsar's own number of the next offset is behind the closed ledgers, or what came before a property."""
    monkeypatch.setattr(entry_stream, "SILENT_S", 0.01)
    topic = FakeTopic()
    topic.next_index = 5
    positions = [topic.write(encode_message(value), 1, "native", 1, native=True) for value in values]
    if is_closed:
        topic.roll_over()
    topic.properties = {"index": str(topic.next_index - 1)}
    if ends == "open":
        topic.held_back_from = positions[0]
    else:
        topic.aborted = set(positions)
    client, admin = cast(PulsarClient, topic), cast(AdminClient, topic)
    found = await read_bounds(client, admin, "topic")
    assert (found.last, found.start_offset, found.next_offset) == (Position(-1, -1), 5, 5)
    async with asyncio.timeout(5):
        start = await StartSearch(client, admin, "topic").run()
    assert start is not None
    assert start.offset == 5


async def test_the_start_does_not_move_when_readers_get_something() -> None:
    """A client that was told the start is about to read there."""
    topic = FakeTopic()
    topic.aborted = {topic.write(NATIVE, 1, "native", number, native=True) for number in range(2)}
    client, admin = cast(PulsarClient, topic), cast(AdminClient, topic)
    search = StartSearch(client, admin, "topic", (await read_bounds(client, admin, "topic")).first)
    topic.write(NATIVE, 1, "native", 2, native=True)
    start = await search.run()
    assert start is not None
    assert start.offset == 0
    found = await read_bounds(client, admin, "topic")
    assert (found.start_offset, found.next_offset) == (0, 3)


@pytest.mark.parametrize("failure", [TimeoutError(), AdminError(500, "Server Error")])
@pytest.mark.parametrize("returned", [False, True])
async def test_an_entry_that_the_broker_does_not_return(
    held_back: Scene, monkeypatch: pytest.MonkeyPatch, failure: Exception, *, returned: bool
) -> None:
    """Or not at first. The others show that something is held back; this one may be a gateway's."""
    held_back.topic.write(idempotent(1, 0), 1, "another gateway", 0)
    unanswered, answer = held_back.topic.write(NATIVE, 1, "native", 3, native=True), held_back.topic.entry
    held_back.topic.aborted.add(unanswered)

    async def entry(topic: str, position: Position) -> object:
        if position == unanswered:
            raise failure
        return await answer(topic, position)

    monkeypatch.setattr(held_back.topic, "entry", entry)
    monkeypatch.setattr(held_back.topic, "content", content_of(held_back.topic, answer if returned else entry))
    with nullcontext() if returned else pytest.raises(type(failure)):
        await held_back.log.producers.load()
    assert (held_back.log.producers.state.find_duplicate(header(1, 0)) is not None) == returned


def content_of(topic: FakeTopic, answer: Callable[[str, Position], Awaitable[Any]]) -> object:
    async def content(name: str, position: Position, *, payload: bool = True) -> StoredContent | None:
        (found,) = [each for each in topic.entries if each[0] == position]
        properties = {each.key.decode(): each.value.decode() for each in found[3].properties}
        stored = await answer(name, position)
        return StoredContent(stored, found[3].producer_name, found[3].sequence_id, properties, found[2])

    return content


async def test_too_many_to_look_up_are_an_error_not_a_duplicate(
    held_back: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client of the first batch got no answer, because its gateway died. Others have written since."""
    monkeypatch.setattr(module, "MAX_ENTRIES", 20)
    held_back.topic.write(idempotent(1, 0), 1, "another gateway", 0)
    for number in range(20):
        held_back.topic.write(NATIVE, 1, "native", 2 + number, native=True)
    with pytest.raises(ServiceNotReadyError):
        await held_back.log.producers.load()


async def test_a_sequence_id_that_java_prints_as_negative(held_back: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    held_back.topic.write(NATIVE, 1, "native", 2**64 - 1, native=True)
    held_back.topic.write(idempotent(1, 0), 1, "another gateway", 0)
    await held_back.log.producers.load()
    assert held_back.log.producers.state.find_duplicate(parse_header(idempotent(1, 0))) is not None


async def test_payloads_of_native_entries_are_not_fetched(held_back: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    held_back.topic.write(idempotent(1, 0), 1, "another gateway", 0)
    fetched: list[Position] = []
    content = held_back.topic.content

    async def asked(topic: str, position: Position, *, payload: bool = True) -> StoredContent | None:
        if payload:
            fetched.append(position)
        return await content(topic, position, payload=payload)

    monkeypatch.setattr(held_back.topic, "content", asked)
    await held_back.log.producers.load()
    assert fetched == [held_back.topic.last]


async def test_a_marker_makes_its_transaction_doubtful(scene: Scene) -> None:
    """The coordinator has ended the transaction: its late batches must be verified, though it seems to be open."""

    def transactional(sequence: int) -> bytes:
        records = [Record(0, 1_000, None, b"v", ())]
        return bytes(
            encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=sequence, transactional=True)
        )

    scene.topic.write(transactional(0), 1, "another gateway", 0)
    await scene.log.end.refresh()
    await let_callbacks_run()
    scene.topic.held_back_from = scene.topic.write(NATIVE, 1, "native", 1, native=True)
    marker = encode_marker(TransactionMarker(MarkerType.COMMIT, 1, 0, 0), 1_000)
    scene.topic.write(bytes(marker), 1, "another gateway", 1)
    await scene.log.producers.load()
    assert scene.log.transactional_writes.needs_verification(parse_header(transactional(1)))


@pytest.mark.parametrize("is_held_back", [True, False])
async def test_the_start_is_not_behind_what_is_held_back(is_held_back: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The admin API cannot return the first entry. Were the log to start behind it, nobody would read it later."""
    topic = FakeTopic()
    first = topic.write(NATIVE, 1, "native", 1, native=True)
    if is_held_back:
        topic.held_back_from = first
    else:
        topic.aborted.add(first)
    topic.roll_over()
    topic.properties = {"index": "0"}
    monkeypatch.setattr(topic, "entry", AsyncMock(side_effect=AdminError(500, "Server Error")))
    opening = read_bounds(cast(PulsarClient, topic), cast(AdminClient, topic), "topic")
    if is_held_back:
        with pytest.raises(NotReturnedError):
            await opening
    else:
        assert (await opening).start_offset == 1
