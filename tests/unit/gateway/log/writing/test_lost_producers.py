"""Batches when Pulsar loses their producer: each is written, or its client gets a retriable error."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import pytest

from gateway.config.limits import Limits
from gateway.errors import KafkaError
from gateway.log.bounds.log_bounds import LogBounds
from gateway.log.opening_turns import OpeningTurns
from gateway.log.partition_log import PartitionLog
from gateway.log.shared import Shared
from gateway.log.writing import producer_supply, writer_names
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
from tests.unit.gateway.log.fake_pulsar import FakeTopic
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
    offset, error = await answered(answers)
    assert offset == -1
    assert isinstance(error, KafkaError)
    assert len(scene.topic.producers) == 3


async def test_what_was_not_written_is_refused_as_retriable(scene: Scene) -> None:
    answers = scene.append(3)
    await let_callbacks_run()
    scene.producer.lose()
    offset, error = await answered(answers)
    assert offset == -1
    assert isinstance(error, KafkaError)


async def test_what_waits_behind_a_refused_batch_of_its_producer_is_not_written(scene: Scene) -> None:
    """Otherwise its client would take the later batch's acknowledgement as that of the refused one, too."""
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


async def test_a_repeated_batch_gets_the_outcome_of_the_one_in_flight(scene: Scene) -> None:
    first = await append(scene, 7, 0)
    again = await append(scene, 7, 0, source=2)
    assert not again
    scene.producer.lose()
    for answers in (first, again):
        assert isinstance((await answered(answers))[1], KafkaError)


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
    await answered(first)
    await let_callbacks_run()
    await scene.log.prepare(PLAIN, 1)
    second = scene.append()
    await let_callbacks_run()
    assert not scene.producer.closed
    scene.producer.write_and_confirm(1)
    assert await answered(second) == (1, None)


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
    await answered(answers)
    await let_callbacks_run()
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
