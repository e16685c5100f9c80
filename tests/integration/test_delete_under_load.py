"""A topic is deleted while many producers write to it: it does not come back, and a new topic can have its name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pulsar as native
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import TIMEOUT_S, Record, create_topic, produce
from tests.integration.native import Admin, full_name, wait_for
from tests.integration.servers import gateway_on, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

PARTITIONS, ROUNDS = 4, 3


@contextmanager
def native_writers(server: PulsarStandalone, topic: str) -> Iterator[None]:
    """One writer on each partition; they reconnect for ever."""
    client = native.Client(server.service_url, logger=native.ConsoleLogger(native.LoggerLevel.Error))
    names = [f"{full_name(topic)}-partition-{number}" for number in range(PARTITIONS)]
    try:
        for producer in [client.create_producer(name, block_if_queue_full=False) for name in names]:
            producer.send_async(b"x", None)
        yield
    finally:
        client.close()


@contextmanager
def kafka_writer(bootstrap: str, topic: str) -> Iterator[None]:
    stop = threading.Event()
    producer = Producer({"bootstrap.servers": bootstrap, "allow.auto.create.topics": False, "linger.ms": 0})

    def write() -> None:
        while not stop.wait(0.002):
            for partition in range(PARTITIONS):
                with suppress(BufferError, Exception):
                    producer.produce(topic, b"x", partition=partition)
            producer.poll(0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        producer.purge()
        producer.flush(TIMEOUT_S)


def test_nothing_comes_back(pulsar: PulsarStandalone, gateway: GatewayProcess, tmp_path: Path) -> None:
    admin = Admin(pulsar)
    with running(gateway_on(pulsar, tmp_path)) as other:
        for _ in range(ROUNDS):
            topic = unique_topic("deleted")
            create_topic(gateway.bootstrap, topic, PARTITIONS)
            with ExitStack() as writers:
                writers.enter_context(native_writers(pulsar, topic))
                for each in (gateway, other):
                    writers.enter_context(kafka_writer(each.bootstrap, topic))
                wait_for(lambda: admin.ledgers(f"{topic}-partition-0")[-1] is not None, "it is written to")  # noqa: B023
                client = AdminClient({"bootstrap.servers": gateway.bootstrap})
                client.delete_topics([topic])[topic].result(TIMEOUT_S)
                create_topic(gateway.bootstrap, unique_topic("meanwhile"), PARTITIONS)
                assert left_of(admin, topic) == []
            assert left_of(admin, topic) == []
            create_topic(gateway.bootstrap, topic, PARTITIONS)
            produce(other.bootstrap, topic, [Record(b"again")])


def left_of(admin: Admin, topic: str) -> list[str]:
    names = [*admin.call("GET", "persistent/kafka/default"), *admin.call("GET", "persistent/kafka/default/partitioned")]
    return [name for name in names if topic in name]
