"""End-to-end latency as applications see it, with client libraries: librdkafka for Kafka, pulsar-client for Pulsar.

Both are C or C++ with a Python interface: one thread sends at a fixed rate, another one waits and takes the time.
"""

import logging
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pulsar
from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from tests.bench.loads.frames import RECORD_BYTES
from tests.bench.loads.meter import Result, latencies

WARM_UP_RECORDS = 20
RECEIVE_TIMEOUT_S = 10.0
_STAMP = struct.Struct(">d")


def _values(rate: int, seconds: float) -> Iterator[bytes]:
    """Records with the time of sending in their value, at a fixed rate."""
    begin = time.perf_counter()
    for number in range(WARM_UP_RECORDS + int(rate * seconds)):
        time.sleep(max(0.0, begin + number / rate - time.perf_counter()))
        yield _STAMP.pack(time.perf_counter()).ljust(RECORD_BYTES, b"v")


def _measure(send_all: Callable[[], None], receive: Callable[[], bytes | None], count: int) -> Result:
    sender = threading.Thread(target=send_all)
    sender.start()
    taken: list[float] = []
    while len(taken) < WARM_UP_RECORDS + count:
        value = receive()
        if value is None:
            raise RuntimeError(f"{len(taken)} of {WARM_UP_RECORDS + count} records arrived")
        taken.append(time.perf_counter() - _STAMP.unpack_from(value)[0])
    sender.join()
    return {"end_to_end_ms": latencies(taken[WARM_UP_RECORDS:])}


def kafka_latency(bootstrap: str, topic: str, rate: int, seconds: float) -> Result:
    """librdkafka without batching delay, acks=all. The consumer is assigned its partition, without a group."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    _wait_for_assignment(consumer, producer, topic)

    def send_all() -> None:
        for value in _values(rate, seconds):
            producer.produce(topic, value, partition=0)
            producer.poll(0)
        producer.flush(RECEIVE_TIMEOUT_S)

    def receive() -> bytes | None:
        message = consumer.poll(RECEIVE_TIMEOUT_S)
        return None if message is None or message.error() else message.value()

    try:
        return _measure(send_all, receive, int(rate * seconds))
    finally:
        consumer.close()


def _wait_for_assignment(consumer: Consumer, producer: Producer, topic: str) -> None:
    """Wait until the consumer is at the end: it reads a record that was sent after the assignment."""
    producer.produce(topic, b"first", partition=0)
    producer.flush(RECEIVE_TIMEOUT_S)
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    deadline = time.monotonic() + RECEIVE_TIMEOUT_S
    while time.monotonic() < deadline:
        producer.produce(topic, b"marker", partition=0)
        producer.flush(RECEIVE_TIMEOUT_S)
        if consumer.poll(0.5) is not None:
            while consumer.poll(0.5) is not None:
                pass
            return
    raise RuntimeError("the consumer never came to the topic's end")


def pulsar_latency(service_url: str, topic: str, rate: int, seconds: float) -> Result:
    """pulsar-client without batching."""
    client = pulsar.Client(service_url, logger=logging.getLogger("pulsar"))
    try:
        consumer = client.subscribe(topic, "bench")
        producer = client.create_producer(topic, batching_enabled=False)

        def send_all() -> None:
            for value in _values(rate, seconds):
                producer.send_async(value, None)
            producer.flush()

        def receive() -> bytes | None:
            message = consumer.receive(int(RECEIVE_TIMEOUT_S * 1000))
            consumer.acknowledge(message)
            return bytes(message.data())

        return _measure(send_all, receive, int(rate * seconds))
    finally:
        client.close()
