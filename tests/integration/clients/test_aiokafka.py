"""aiokafka's producer, consumer and admin client; the same against Apache Kafka."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition  # type: ignore[import-untyped]
from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # type: ignore[import-untyped]

from tests.support.names import unique_topic

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 60
START_MS = 1_700_000_000_000
HEADERS = [("trace", b"7"), ("empty", b"")]


@pytest.fixture
async def topic(bootstrap: str) -> str:
    name = unique_topic("aiokafka")
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, 2, 1)])
    finally:
        await admin.close()
    return name


async def write(bootstrap: str, topic: str, count: int, **config: Any) -> list[int]:
    """Write records to partition 0, some without a key, others without a value. Returns their offsets."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, **config) as producer:
        sent = [
            await producer.send(
                topic,
                value=None if number % 5 == 1 else b"value %d" % number,
                key=None if number % 5 == 2 else b"key %d" % number,
                headers=HEADERS,
                partition=0,
                timestamp_ms=START_MS + number,
            )
            for number in range(count)
        ]
        async with asyncio.timeout(TIMEOUT_S):
            return [(await future).offset for future in sent]


@asynccontextmanager
async def assigned(bootstrap: str, topic: str) -> AsyncIterator[Any]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="none")
    consumer.assign([TopicPartition(topic, 0)])
    async with consumer:
        yield consumer


async def take(consumer: Any, count: int) -> list[Any]:
    async with asyncio.timeout(TIMEOUT_S):
        return [await consumer.getone() for _ in range(count)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
async def test_records_come_back_whole(bootstrap: str, topic: str, codec: str | None, idempotent: bool) -> None:
    assert await write(bootstrap, topic, 60, compression_type=codec, enable_idempotence=idempotent) == [*range(60)]
    async with assigned(bootstrap, topic) as consumer:
        await consumer.seek_to_beginning()
        read = await take(consumer, 60)
    assert [record.offset for record in read] == [*range(60)]
    assert [record.value for record in read] == [None if n % 5 == 1 else b"value %d" % n for n in range(60)]
    assert [record.key for record in read] == [None if n % 5 == 2 else b"key %d" % n for n in range(60)]
    assert [record.timestamp for record in read] == [START_MS + number for number in range(60)]
    assert all([*record.headers] == HEADERS for record in read)


async def test_positions_and_times(bootstrap: str, topic: str) -> None:
    await write(bootstrap, topic, 60)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with assigned(bootstrap, topic) as consumer:
        assert await consumer.beginning_offsets([first, second]) == {first: 0, second: 0}
        assert await consumer.end_offsets([first, second]) == {first: 60, second: 0}
        found = await consumer.offsets_for_times({first: START_MS + 20, second: START_MS})
        assert (found[first].offset, found[first].timestamp, found[second]) == (20, START_MS + 20, None)
        consumer.seek(first, 41)
        assert [record.offset for record in await take(consumer, 2)] == [41, 42]
        consumer.seek(first, 3)
        assert [record.offset for record in await take(consumer, 2)] == [3, 4]


async def test_a_consumer_at_the_end_gets_what_comes(bootstrap: str, topic: str) -> None:
    await write(bootstrap, topic, 10)
    async with assigned(bootstrap, topic) as consumer:
        await consumer.seek_to_end()
        assert await consumer.position(TopicPartition(topic, 0)) == 10
        waiting = asyncio.create_task(take(consumer, 5))
        assert await write(bootstrap, topic, 5) == [*range(10, 15)]
        assert [record.offset for record in await waiting] == [*range(10, 15)]
