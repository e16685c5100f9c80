"""Batches when Pulsar loses their producer: each is written once, in the order of arrival, or its client gets an error
and retries."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, cast

import pytest

from gateway.config.limits import Limits
from gateway.errors import KafkaError, error_code
from gateway.log.bounds.log_bounds import LogBounds
from gateway.log.opening_turns import OpeningTurns
from gateway.log.partition_log import PartitionLog
from gateway.log.shared import Shared
from gateway.log.writing import producer_supply, writer_names
from gateway.log.writing.appender import MAX_LOSSES
from gateway.log.writing.writer_names import fence_writers
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ConnectionLostError, TopicNotFoundError
from gateway.pulsar.position import Position
from protocol.kafka.batch import parse_header
from protocol.kafka.errors import ErrorCode
from protocol.kafka.records import Record, encode_batch
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.fake_pulsar import FakeProducer, FakeTopic
from tests.unit.gateway.log.log_scene import PLAIN, Scene, answered, append


async def test_a_lost_producer_leaves_no_doubt(scene: Scene) -> None:
    first = scene.append(3)
    await let_callbacks_run()
    lost = scene.producer
    lost.write(0)
    lost.sent[1] = (b"", 0)  # sent, and never written
    lost.lose()
    assert await answered(first) == (1, None)
    second = scene.append(1)
    await scene.log.prepare(PLAIN, 1)
    await let_callbacks_run()
    assert scene.producer is not lost
    scene.producer.write_and_confirm(1)
    assert await answered(second) == (4, None)


async def opened_again(scene: Scene, producers: int = 2) -> FakeProducer:
    """The producer that replaces a lost one, once it has sent something."""
    async with asyncio.timeout(5):
        while len(scene.topic.producers) < producers or not scene.producer.sent:
            await asyncio.sleep(0.01)
    return scene.producer


async def test_a_producer_that_is_lost_in_the_turn_in_which_it_was_opened_is_replaced(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The opening has ended, and callbacks of its task have not run yet."""
    supply, resolved = scene.log.writer._supply, asyncio.get_running_loop().create_future()
    resolve = supply._resolve_in_flight

    async def resolve_later() -> None:
        await resolve()
        await resolved

    monkeypatch.setattr(supply, "_resolve_in_flight", resolve_later)
    scene.producer.lose()
    answers = scene.append(3)
    async with asyncio.timeout(5):
        while len(scene.topic.producers) < 2:
            await asyncio.sleep(0.01)
    await let_callbacks_run()
    resolved.set_result(None)  # the opening continues in the next turn, and then the producer is lost
    asyncio.get_running_loop().call_soon(scene.producer.lose)
    producer = await opened_again(scene, 3)
    [sequence_id] = producer.sent
    producer.write_and_confirm(sequence_id)
    assert await answered(answers) == (1, None)


async def test_what_was_not_written_is_sent_again_in_order(scene: Scene) -> None:
    """Also of producers that are not idempotent: their clients would send a refused batch again behind the others."""
    in_flight = []
    for count in (1, 2):
        in_flight.append(scene.append(count))
        await let_callbacks_run()
    waiting = [scene.append(4), scene.append(8)]
    scene.producer.write(0)
    assert list(scene.producer.sent) == [0, 1]
    scene.producer.lose()
    late = scene.append(16)
    producer = await opened_again(scene)
    assert await answered(in_flight[0]) == (1, None)
    [(sequence_id, (_, count))] = producer.sent.items()
    assert (sequence_id, count) == (2, 2 + 4 + 8 + 16)
    producer.write_and_confirm(2)
    offsets = [await answered(each) for each in (in_flight[1], *waiting, late)]
    assert offsets == [(2, None), (4, None), (8, None), (16, None)]


async def test_what_is_in_flight_is_refused_when_the_log_is_closed(scene: Scene) -> None:
    answers = scene.append(3)
    await let_callbacks_run()
    scene.producer.lose()
    await scene.log.close()
    offset, error = await answered(answers)
    assert (offset, error_code(cast(Exception, error))) == (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def test_without_the_lease_batches_of_idempotent_producers_are_not_sent_again(scene: Scene) -> None:
    """Another leader may have accepted them. What waits behind a refused batch must not be written before it."""
    in_flight = [await append(scene, 7, 0), scene.append()]
    await let_callbacks_run()
    follower, plain = await append(scene, 7, 1), scene.append()
    scene.leads = False
    scene.producer.lose()
    for refused in (in_flight[0], follower):
        assert isinstance((await answered(refused))[1], KafkaError)
    scene.leads = True
    (await opened_again(scene)).write_and_confirm(2)
    assert [await answered(each) for each in (in_flight[1], plain)] == [(1, None), (2, None)]
    with pytest.raises(KafkaError) as out_of_order:
        await append(scene, 7, 2)
    assert out_of_order.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    again = await append(scene, 7, 0)
    scene.producer.write_and_confirm(3)
    assert await answered(again) == (3, None)


async def test_a_batch_with_which_producers_are_lost_does_not_stop_the_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker closes the connection each time it gets this batch."""
    monkeypatch.setattr(producer_supply, "LATE_ARRIVAL_S", 0.0)
    bad = await append(scene, 7, 0)
    for number in range(MAX_LOSSES):
        assert not bad
        if number == 1:
            follower, other = await append(scene, 7, 1), scene.append(2)
        (await opened_again(scene, number + 1)).lose()
    producer = await opened_again(scene, MAX_LOSSES + 1)
    for refused in (bad, follower):
        assert error_code(cast(Exception, (await answered(refused))[1])) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    [(sequence_id, (_, count))] = producer.sent.items()
    assert count == 2
    producer.write_and_confirm(sequence_id)
    assert await answered(other) == (1, None)


@pytest.mark.parametrize("leads", [True, False])
async def test_what_came_from_another_cluster_meanwhile_is_not_sent_again(scene: Scene, *, leads: bool) -> None:
    """The client went there, and replication was faster than the new producer."""
    await scene.log.producers.load()
    batches = [await append(scene, 7, sequence) for sequence in (0, 1)]
    scene.producer.lose()
    scene.leads = leads
    for sequence in (0, 1):
        records = [Record(0, 1_000, None, b"value", ())]
        data = encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence)
        scene.topic.write(bytes(data), 1, "pulsar.repl.another", sequence)
        scene.topic.entries[-1][3].replicated_from = "another"
    answers = [await answered(each) for each in batches]
    repeated = [await answered(await append(scene, 7, sequence)) for sequence in (0, 1)]
    assert repeated == [(1, None), (2, None)]
    if leads:
        assert answers == repeated
    assert not scene.producer.sent


async def test_a_repeated_batch_gets_the_outcome_of_the_one_in_flight(scene: Scene) -> None:
    first = await append(scene, 7, 0)
    again = await append(scene, 7, 0, source=2)
    assert not again
    scene.producer.lose()
    (await opened_again(scene)).write_and_confirm(1)
    assert [await answered(each) for each in (first, again)] == [(1, None)] * 2
    assert scene.log.end_offset == 2


async def test_a_new_producer_that_is_lost_while_the_log_is_read_is_not_used(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = scene.append()
    await let_callbacks_run()

    async def lose_new_producer(topic: str) -> Any:
        monkeypatch.undo()
        scene.producer.lose()
        return await scene.topic.internal_stats(topic)

    monkeypatch.setattr(scene.topic, "internal_stats", lose_new_producer)
    scene.producer.lose()
    (await opened_again(scene, 3)).write_and_confirm(1)
    assert await answered(first) == (1, None)
    assert [producer.closed for producer in scene.topic.producers] == [True, True, False]


@pytest.mark.parametrize("times", [1, 3])
async def test_what_waits_is_kept_when_a_new_producer_is_lost_at_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """A refused batch would be sent again behind the next ones, by a client that is not idempotent."""
    monkeypatch.setattr(producer_supply, "AGAIN_S", 0.0)
    first = scene.append(3)
    await let_callbacks_run()
    waiting = scene.append(2)
    losses, resolve = iter(range(times)), scene.log.writer._supply._resolve_in_flight

    async def resolve_and_lose() -> None:
        await resolve()  # what was in flight waits, too
        if next(losses, None) is not None:
            scene.producer.lose()

    monkeypatch.setattr(scene.log.writer._supply, "_resolve_in_flight", resolve_and_lose)
    scene.producer.lose()
    producer = await opened_again(scene, 2 + times)
    late = scene.append(1)
    [sequence_id] = producer.sent
    producer.write_and_confirm(sequence_id)
    assert [await answered(first), await answered(waiting)] == [(1, None), (4, None)]
    await let_callbacks_run()
    producer.write_and_confirm(sequence_id + 1)
    assert await answered(late) == (6, None)


async def test_a_new_producer_is_closed_when_the_log_cannot_be_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the name of the lost one, which the next attempt needs."""
    monkeypatch.setattr(producer_supply, "RETRY_S", 0)
    answers = scene.append()
    await let_callbacks_run()

    async def fail(topic: str) -> Any:
        monkeypatch.undo()
        raise ConnectionLostError("no statistics")

    monkeypatch.setattr(scene.topic, "internal_stats", fail)
    scene.producer.lose()
    (await opened_again(scene, 3)).write_and_confirm(1)
    assert await answered(answers) == (1, None)
    assert [producer.closed for producer in scene.topic.producers] == [True, True, False]


async def test_a_batch_for_a_log_that_lost_its_idle_producer_opens_one(scene: Scene) -> None:
    scene.producer.lose()
    await let_callbacks_run()
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


async def test_a_bounded_number_of_producers_is_opened_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    topic, opening, most, may_go_on = FakeTopic(), 0, 0, asyncio.Event()
    open_producer = topic.open_producer

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal opening, most
        opening += 1
        most = max(most, opening)
        await may_go_on.wait()
        opening -= 1
        return await open_producer(*arguments, **options)

    monkeypatch.setattr(topic, "open_producer", counted)
    client, admin = cast(PulsarClient, topic), cast(AdminClient, topic)
    shared = Shared(client, admin, Limits(max_log_openings=2), Metrics(), lambda: True)
    logs = [PartitionLog(f"topic-{number}", shared, LogBounds(Position(-1, -1), 0, 0)) for number in range(5)]
    waiting = [asyncio.create_task(log.prepare(PLAIN, 1)) for log in logs]
    await let_callbacks_run()
    assert (opening, most) == (2, 2)
    may_go_on.set()
    await asyncio.gather(*waiting)
    assert most == 2
    assert len(topic.producers) == 5
    await asyncio.gather(*(log.close() for log in logs))


async def test_names_of_other_logs_are_taken_over_while_late_entries_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer_names, "LATE_ARRIVAL_S", 60.0)
    topic, turns = FakeTopic(), OpeningTurns(1)
    client = cast(PulsarClient, topic)
    tasks = [asyncio.create_task(fence_writers(client, f"topic-{number}", ["gone"], turns)) for number in range(3)]
    await let_callbacks_run()
    assert len(topic.producers) == 3
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Names:
    """Of a gateway, and of those that were evicted."""

    def __init__(self) -> None:
        self.gone: tuple[str, ...] = ("gone",)

    def own_name(self) -> str:
        return "mine"

    def evicted(self) -> tuple[str, ...]:
        return self.gone


async def test_the_log_is_read_once_after_evicted_gateways_are_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_names, "LATE_ARRIVAL_S", 0.0)
    topic, names, asked_after = FakeTopic(), Names(), []
    internal_stats = topic.internal_stats

    async def counted(name: str) -> Any:
        asked_after.append([producer.name for producer in topic.producers])
        return await internal_stats(name)

    monkeypatch.setattr(topic, "internal_stats", counted)
    client, admin = cast(PulsarClient, topic), cast(AdminClient, topic)
    shared = Shared(client, admin, Limits(), Metrics(), lambda: True, names)
    log = PartitionLog("topic", shared, LogBounds(Position(-1, -1), 0, 0))
    records = [Record(0, 1_000, None, b"value", ())]
    header = parse_header(encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=0))
    await log.prepare(header, 1, time.monotonic())
    assert asked_after == [["mine", "gone"]]
    names.gone = ("gone", "gone too")
    await log.prepare(header, 1, time.monotonic())
    assert asked_after[1] == ["mine", "gone", "gone too"], "what it wrote before is read, too"
    await log.close()


@pytest.mark.parametrize("seed", range(30))
async def test_everything_is_written_once_and_in_order(
    scene: Scene, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker writes some of what was sent, acknowledges some of that, and loses the producer. No error is seen."""
    monkeypatch.setattr(producer_supply, "LATE_ARRIVAL_S", 0.0)
    chance, batches = random.Random(seed), []
    unconfirmed: dict[int, Position] = {}

    def write(count: int) -> None:
        for sequence_id in [each for each in scene.producer.sent if each not in unconfirmed][:count]:
            unconfirmed[sequence_id] = scene.producer.write(sequence_id)

    def confirm(count: int) -> None:
        for sequence_id in list(unconfirmed)[:count]:
            del scene.producer.sent[sequence_id]
            scene.producer.confirm(sequence_id, unconfirmed.pop(sequence_id))

    for _ in range(40):
        if scene.log.writer.ready:
            batches += [scene.append(chance.randint(1, 3)) for _ in range(chance.randint(0, 3))]
            await let_callbacks_run()
        if scene.log.writer.producer_name and not scene.producer.closed:
            write(chance.randint(0, 2))
            confirm(chance.randint(0, 2))
            if chance.random() < 0.2:
                scene.producer.lose()
                unconfirmed.clear()
        await asyncio.sleep(chance.choice([0, 0.001]))
    await scene.log.prepare(PLAIN, 1)
    while not scene.log.writer._idle:
        await let_callbacks_run()
        write(100)
        confirm(100)
    assert len(scene.topic.producers) > 1
    offsets = [await answered(each) for each in batches]
    assert all(error is None for _, error in offsets)
    assert [offset for offset, _ in offsets] == sorted({offset for offset, _ in offsets})
