"""The records that both sides get. Partitions and timestamps are given, so that all columns can be compared."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

FIRST_TIMESTAMP_MS = 1_700_000_000_000
TIMEOUT_S = 180.0
"""The timeout of a producer: long enough for a server that is killed and restarted."""
POLL_S = 1.0
MAX_READ = 10_000


@dataclass(frozen=True)
class Record:
    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp_ms: int = FIRST_TIMESTAMP_MS
    headers: tuple[tuple[str, bytes | None], ...] = ()


def numbered(count: int, partitions: int = 1, first: int = 0, prefix: str = "v") -> Iterator[Record]:
    """Records v0, v1, … one second apart, distributed round-robin to the partitions; ten different keys."""
    for number in range(first, first + count):
        yield Record(
            f"{prefix}{number}".encode(),
            f"k{number % 10}".encode(),
            number % partitions,
            FIRST_TIMESTAMP_MS + number * 1000,
        )


def paced(records: Iterable[Record], per_s: float) -> Iterator[Record]:
    """Yield the records at a steady rate; when behind, as fast as possible."""
    began = time.monotonic()
    for number, record in enumerate(records):
        if (ahead_s := number / per_s - (time.monotonic() - began)) > 0:
            time.sleep(ahead_s)
        yield record


def feed(bootstrap: str, topic: str, records: Iterable[Record]) -> None:
    """Write in order, and return when all are acknowledged. Raises RuntimeError if one is not."""
    failures: list[str] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for record in records:
        _produce(producer, topic, record, delivered)
        producer.poll(0)
    left = producer.flush(TIMEOUT_S)
    if left or failures:
        raise RuntimeError(f"{topic}: {left} records not acknowledged; {failures[:3]}")


def _produce(producer: Producer, topic: str, record: Record, delivered: Callable[[object, object], None]) -> None:
    """Wait while the producer's queue is full. Raises RuntimeError if it stays full."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=record.partition,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
                on_delivery=delivered,
            )
        except BufferError:
            producer.poll(POLL_S)
        else:
            return
    raise RuntimeError(f"{topic}: the producer's queue stays full")


def read_all(bootstrap: str, topic: str) -> list[Record]:
    """All records of the topic, read without Spark, partition after partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        partitions = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
        return [record for partition in sorted(partitions) for record in _read_partition(consumer, topic, partition)]
    finally:
        consumer.close()


def _read_partition(consumer: Consumer, topic: str, partition: int) -> Iterator[Record]:
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_S)
    if low == high:
        return
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    while consumer.position([TopicPartition(topic, partition)])[0].offset < high:
        for message in consumer.consume(MAX_READ, POLL_S):
            if message.error():
                raise RuntimeError(f"{topic}-{partition}: {message.error()}")
            headers: tuple[Any, ...] = tuple(message.headers() or ())
            yield Record(message.value(), message.key(), partition, message.timestamp()[1], headers)
