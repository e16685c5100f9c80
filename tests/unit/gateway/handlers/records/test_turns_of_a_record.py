"""A record does not wait for turns of the event loop in which nothing is done for it: each polls all sockets."""

from __future__ import annotations

import asyncio

from tests.bench.frames import FetchFrames, ProduceFrames, record_batch
from tests.bench.inside.scene import Scene

TOPIC = "records"


async def test_from_a_producer_to_a_waiting_consumer() -> None:
    scene = Scene()
    scene.add_topic(TOPIC)
    producer, consumer = scene.connect(), scene.connect()
    batches, fetches = ProduceFrames(TOPIC, record_batch(1)), FetchFrames(TOPIC, max_bytes=1 << 20, max_wait_ms=30_000)
    producer.ask(b"".join(batches.request(1)))
    await scene.until_answered([producer])
    consumer.ask(fetches.request(1, 0))
    await scene.until_answered([consumer])
    consumer.ask(fetches.request(2, 1))
    await scene.run()
    producer.received.clear()
    consumer.received.clear()
    sent = scene.broker.writes

    producer.ask(b"".join(batches.request(2)))
    await asyncio.sleep(0)
    assert scene.broker.writes == sent + 1

    scene.broker.say(scene.broker.answers())
    await asyncio.sleep(0)
    assert producer.received and consumer.received
