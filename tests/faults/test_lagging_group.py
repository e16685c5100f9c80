"""A group whose members have very many partitions to catch up with, at a gateway that has just started."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import create_topic
from tests.integration.servers import gateway_on, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

PARTITIONS, RECORDS, MEMBERS = 3_000, 5, 10
WRITTEN_WITHIN_S = 300.0
STANDSTILL_S = 240.0
"""A member needs all of its logs opened before it reads the first one, and a busy Pulsar opens few of them a second."""


@pytest.fixture
def lone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """On a Pulsar of its own, which thousands of topics would slow down for other tests."""
    folder = tmp_path_factory.mktemp("lagging-group")
    groups = {"initial_rebalance_delay_ms": 3_000}  # as in Kafka: the members share the partitions from the beginning
    with (
        running(PulsarStandalone(folder / "pulsar", heap_mb=1_024)) as pulsar,
        running(gateway_on(pulsar, folder / "gateway", groups=groups)) as gateway,
    ):
        yield gateway


class Group:
    """What the members of a group have read."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._settings = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
        self._topic = topic
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._members = [threading.Thread(target=self._consume) for _ in range(MEMBERS)]
        self.values: dict[int, dict[bytes | None, None]] = defaultdict(dict)
        """By partition, in the order of arrival. A rebalance may bring values again."""
        self.count = 0

    def read(self, count: int) -> None:
        """Fails when nothing arrives for STANDSTILL_S."""
        for member in self._members:
            member.start()
        try:
            known, moved_at = 0, time.monotonic()
            while self.count < count:
                time.sleep(0.2)
                if self.count > known:
                    known, moved_at = self.count, time.monotonic()
                assert time.monotonic() - moved_at < STANDSTILL_S, f"{known} of {count}, in {len(self.values)}"
        finally:
            self._ended.set()
            for member in self._members:
                member.join()

    def _consume(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([self._topic])
        while not self._ended.is_set():
            for message in consumer.consume(1_000, 0.2):
                if message.error() is None:
                    with self._lock:
                        values = self.values[message.partition() or 0]
                        self.count += message.value() not in values
                        values[message.value()] = None
        consumer.close()


def test_thousands_of_lagging_partitions(lone: GatewayProcess) -> None:
    """Every record arrives, in order, and there is never a long time without a new record."""
    topic = unique_topic("lagging-group")
    create_topic(lone.bootstrap, topic, PARTITIONS)
    write(lone.bootstrap, topic)
    lone.stop()
    lone.start()
    lone.wait_ready()
    group = Group(lone.bootstrap, topic)
    group.read(PARTITIONS * RECORDS)
    expected = [b"%d" % number for number in range(RECORDS)]
    wrong = {partition: values for partition, values in group.values.items() if [*values] != expected}
    assert not wrong
    assert len(group.values) == PARTITIONS


def write(bootstrap: str, topic: str) -> None:
    errors: Counter[str] = Counter()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 200})

    def delivered(error: object, _: object) -> None:
        if error is not None:
            errors[str(error)] += 1

    for number in range(RECORDS):
        for partition in range(PARTITIONS):
            producer.produce(topic, b"%d" % number, partition=partition, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(WRITTEN_WITHIN_S) == 0
    assert not errors
