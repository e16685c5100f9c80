"""A record does not wait for turns of the event loop in which nothing is done for it: each polls all sockets."""

from __future__ import annotations

import asyncio

from gateway.log.reading.waiters import FEW
from tests.bench.inside.scene import FakeClient, Scene
from tests.bench.loads.frames import FetchFrames, ProduceFrames, record_batch

TOPIC = "records"
LEARNING = 3
"""From then on, the requests of both clients take their fast paths."""


async def turns_until(client: FakeClient) -> int:
    """The turns that pass until the client gets an answer, at most 10."""
    for turns in range(10):
        if client.received:
            return turns
        await asyncio.sleep(0)
    return 10


async def test_from_a_producer_to_a_waiting_consumer() -> None:
    scene = Scene()
    scene.add_topic(TOPIC)
    producer, consumer = scene.connect(), scene.connect()
    batches, fetches = ProduceFrames(TOPIC, record_batch(1)), FetchFrames(TOPIC, max_bytes=1 << 20, max_wait_ms=30_000)
    for offset in range(LEARNING):
        producer.ask(b"".join(batches.request(offset)))
        consumer.ask(fetches.request(offset, offset))
        await scene.until_answered([producer, consumer])

    consumer.ask(fetches.request(LEARNING, LEARNING))
    await scene.run()
    sent = scene.broker.writes
    producer.ask(b"".join(batches.request(LEARNING)))
    await asyncio.sleep(0)
    assert scene.broker.writes == sent + 1

    for client in (producer, consumer):
        client.received.clear()
    scene.broker.say(scene.broker.answers())
    assert (await turns_until(producer), await turns_until(consumer)) == (0, 1), "the consumer a turn later"


async def test_many_consumers_are_not_answered_in_one_turn() -> None:
    scene = Scene()
    scene.add_topic(TOPIC)
    producer, consumers = scene.connect(), [scene.connect() for _ in range(2 * FEW)]
    batches, fetches = ProduceFrames(TOPIC, record_batch(1)), FetchFrames(TOPIC, max_bytes=1 << 20, max_wait_ms=30_000)
    for offset in range(LEARNING):
        producer.ask(b"".join(batches.request(offset)))
        for consumer in consumers:
            consumer.ask(fetches.request(offset, offset))
        await scene.until_answered([producer, *consumers])
    for consumer in consumers:
        consumer.received.clear()
        consumer.ask(fetches.request(LEARNING, LEARNING))
    producer.ask(b"".join(batches.request(LEARNING)))
    await scene.run()
    scene.broker.say(scene.broker.answers())
    await asyncio.sleep(0)
    assert sum(bool(consumer.received) for consumer in consumers) <= FEW
    await scene.until_answered(consumers)
    assert all(consumer.received for consumer in consumers)
