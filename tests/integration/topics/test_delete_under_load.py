"""A topic is deleted while many producers write to it: it does not come back, and a new topic can have its name. What
the same producers write to another topic is not disturbed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pulsar as native
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import TIMEOUT_S, Record, create_topic, produce
from tests.integration.native import Admin, wait_for
from tests.integration.servers import await_fleet, gateway_on, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

PARTITIONS, ROUNDS = 4, 3


@contextmanager
def native_writers(server: PulsarStandalone, namespace: str, topic: str) -> Iterator[None]:
    """One writer on each partition; they reconnect for ever."""
    client = native.Client(server.service_url, logger=native.ConsoleLogger(native.LoggerLevel.Error))
    names = [f"persistent://{namespace}/{topic}-partition-{number}" for number in range(PARTITIONS)]
    try:
        for producer in [client.create_producer(name, block_if_queue_full=False) for name in names]:
            producer.send_async(b"x", None)
        yield
    finally:
        client.close()


PATIENT = {"lease_ms": 60_000, "dead_after_ms": 70_000, "cut_off_ms": 80_000}
"""A busy machine can suspend a gateway for longer than the usual 2.5 s."""


@contextmanager
def kafka_writer(bootstrap: str, topic: str, kept: str, outcomes: list[KafkaError | None]) -> Iterator[None]:
    """One producer, which never retries, writes to `topic` and to `kept`. The outcomes are those of `kept`."""
    stop = threading.Event()
    producer = Producer(
        {"bootstrap.servers": bootstrap, "allow.auto.create.topics": False, "linger.ms": 0, "retries": 0}
    )
    producer.list_topics(kept)

    def write() -> None:
        while not stop.wait(0.002):
            for partition in range(PARTITIONS):
                with suppress(BufferError, Exception):
                    producer.produce(topic, b"x", partition=partition)
            with suppress(BufferError):
                producer.produce(kept, b"x", partition=0, on_delivery=lambda error, _: outcomes.append(error))
            producer.poll(0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        outcomes_so_far = len(outcomes)
        producer.purge()
        producer.flush(TIMEOUT_S)
        del outcomes[outcomes_so_far:]


def test_nothing_comes_back(pulsar: PulsarStandalone, tmp_path: Path) -> None:
    namespace = unique_topic("deleted")
    one, other = (
        gateway_on(pulsar, tmp_path / name, pulsar={"namespace": namespace}, fleet=PATIENT) for name in ("one", "other")
    )
    with running(one), running(other):
        await_fleet([one, other])  # afterwards no leader changes: the writers do not retry
        kept = unique_topic("kept")
        create_topic(one.bootstrap, kept)
        outcomes: list[KafkaError | None] = []
        for _ in range(ROUNDS):
            delete_and_create_again(pulsar, f"kafka/{namespace}", one, other, kept, outcomes)
        assert outcomes and not any(outcomes), [str(error) for error in outcomes if error]


def delete_and_create_again(
    pulsar: PulsarStandalone, namespace: str, one: GatewayProcess, other: GatewayProcess, kept: str,
    outcomes: list[KafkaError | None],
) -> None:  # fmt: skip
    admin, topic = Admin(pulsar, namespace), unique_topic("deleted")
    create_topic(one.bootstrap, topic, PARTITIONS)
    with ExitStack() as writers:
        writers.enter_context(native_writers(pulsar, namespace, topic))
        for each in (one, other):
            writers.enter_context(kafka_writer(each.bootstrap, topic, kept, outcomes))
        wait_for(lambda: admin.ledgers(f"{topic}-partition-0")[-1] is not None, "it is written to")
        client = AdminClient({"bootstrap.servers": one.bootstrap})
        client.delete_topics([topic])[topic].result(TIMEOUT_S)
        create_topic(one.bootstrap, unique_topic("meanwhile"), PARTITIONS)
        assert left_of(admin, namespace, topic) == []
    assert left_of(admin, namespace, topic) == []
    create_topic(one.bootstrap, topic, PARTITIONS)
    produce(other.bootstrap, topic, [Record(b"again")])


def left_of(admin: Admin, namespace: str, topic: str) -> list[str]:
    names = [*admin.call("GET", f"persistent/{namespace}"), *admin.call("GET", f"persistent/{namespace}/partitioned")]
    return [name for name in names if topic in name]
