"""Batches when Pulsar loses their producer: each is written, or its client gets a retriable error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.errors import KafkaError
from gateway.log.writing import producer_supply
from gateway.pulsar.errors import ConnectionLostError, TopicNotFoundError
from protocol.kafka.errors import ErrorCode
from tests.unit.gateway.log.log_scene import PLAIN, Scene, answered, append, settle


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
    """It has the name of the lost one, which the next attempt needs."""
    monkeypatch.setattr(producer_supply, "RETRY_S", 0)
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
