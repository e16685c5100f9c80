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


class Assignment:
    """What one member read from one assignment until the next one: offsets by partition, in the order of arrival."""

    def __init__(self) -> None:
        self.offsets: dict[int, list[int]] = defaultdict(list)


class Group:
    """What the members of a group have read."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._settings = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
        self._topic = topic
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._members = [threading.Thread(target=self._consume) for _ in range(MEMBERS)]
        self.assignments: list[Assignment] = []
        """Of all members, in the order in which they began."""
        self.values: dict[tuple[int, int], set[bytes | None]] = defaultdict(set)
        """By partition and offset. A rebalance may bring records again."""

    def read(self, count: int) -> None:
        """Fails when nothing arrives for STANDSTILL_S."""
        for member in self._members:
            member.start()
        try:
            known, moved_at = 0, time.monotonic()
            while len(self.values) < count:
                time.sleep(0.2)
                if len(self.values) > known:
                    known, moved_at = len(self.values), time.monotonic()
                assert time.monotonic() - moved_at < STANDSTILL_S, f"{known} of {count}"
        finally:
            self._ended.set()
            for member in self._members:
                member.join()

    def _consume(self) -> None:
        assignment = Assignment()

        def assigned(*_: object) -> None:
            nonlocal assignment
            assignment = Assignment()
            with self._lock:
                self.assignments.append(assignment)

        consumer = Consumer(self._settings)
        consumer.subscribe([self._topic], on_assign=assigned)
        while not self._ended.is_set():
            for message in consumer.consume(1_000, 0.2):
                if message.error() is None:
                    partition, offset = message.partition() or 0, message.offset() or 0
                    with self._lock:
                        assignment.offsets[partition].append(offset)
                        self.values[partition, offset].add(message.value())
        consumer.close()

    def skipped(self) -> list[tuple[int, list[int]]]:
        """Partitions and offsets of assignments that left out a record which no assignment before them had read.

        The records of two members have no order: one may still hold what the next one goes on behind.
        """
        read: dict[int, set[int]] = defaultdict(lambda: {-1})
        found = []
        for assignment in self.assignments:
            for partition, offsets in assignment.offsets.items():
                is_whole = offsets == [*range(offsets[0], offsets[0] + len(offsets))]
                if not is_whole or offsets[0] - 1 not in read[partition]:
                    found.append((partition, offsets))
                read[partition].update(offsets)
        return found


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
    assert not group.skipped()
    written = {(partition, number): {b"%d" % number} for number in range(RECORDS) for partition in range(PARTITIONS)}
    wrong = {place: values for place, values in group.values.items() if values != written.get(place)}
    assert not wrong


def write(bootstrap: str, topic: str) -> None:
    errors: Counter[str] = Counter()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 200, "enable.idempotence": True})

    def delivered(error: object, _: object) -> None:
        if error is not None:
            errors[str(error)] += 1

    for number in range(RECORDS):
        for partition in range(PARTITIONS):
            producer.produce(topic, b"%d" % number, partition=partition, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(WRITTEN_WITHIN_S) == 0
    assert not errors
