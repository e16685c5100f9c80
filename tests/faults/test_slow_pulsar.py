"""Pulsar answers late: now the admin API, now a reader, now a producer. What is late is not missing.

A busy Pulsar works in this way, but makes everything late at the same time.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from deploy.local.standalone import PulsarStandalone
from tests.faults.test_broker_threads import DELIVERY_MS, sending
from tests.integration.admin_proxy import AdminProxy
from tests.integration.broker_proxy import SlowBrokerProxy
from tests.integration.confluent import Sender, create_topic, read_all
from tests.integration.servers import gateway_on
from tests.integration.transactional_writers import check_transactions, writing
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

PARTITIONS, WRITERS, RESTARTS = 2, 2, 2
LATE_S = 4.0
"""Longer than the gateway waits for one entry from the admin API."""
PAUSE_S = 3.0
READ_S = 8.0
NO_BROKER = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT}
pytestmark = pytest.mark.timeout(600)  # each start of a gateway needs many answers


class SlowAdminProxy(AdminProxy):
    """Some requests reach Pulsar late, and some answers come late."""

    late_share = 0.2
    chance = random.Random()

    def forward(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        time.sleep(self._late_s())
        answer = super().forward(method, path, body, headers)
        time.sleep(self._late_s())
        return answer

    def _late_s(self) -> float:
        return self.chance.uniform(0, LATE_S) if self.chance.random() < self.late_share else 0.0


class Reader:
    """Reads partitions from the start, again and again. Each offset is there, always with the same value.

    In the `transactional` topic, markers have offsets, too.
    """

    def __init__(self, bootstrap: str, topics: Sequence[str], transactional: str) -> None:
        self.faults: list[str] = []
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self._bootstrap = bootstrap
        self._topics = topics
        self._transactional = transactional
        self._known: dict[tuple[str, int, int], bytes | None] = {}

    def _run(self) -> None:
        while not self.stop.is_set():
            self._read_for(READ_S)

    def _read_for(self, seconds: float) -> None:
        next_offsets = {(topic, number): 0 for topic in self._topics for number in range(PARTITIONS)}
        options = {"auto.offset.reset": "error", "enable.auto.commit": False, "isolation.level": "read_uncommitted"}
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": unique_topic("reader"), **options})
        consumer.assign([TopicPartition(*key, 0) for key in next_offsets])
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.stop.is_set():
            for message in consumer.consume(500, 0.2):
                error, key = message.error(), (message.topic() or "", message.partition() or 0)
                if error is not None:
                    self.faults += [] if error.code() in NO_BROKER else [f"{key}: {error}"]
                    continue
                offset, value = message.offset() or 0, message.value()
                is_next = offset == next_offsets[key] or (key[0] == self._transactional and offset > next_offsets[key])
                if not is_next or self._known.setdefault((*key, offset), value) != value:
                    self.faults.append(f"{key}: {offset} after {next_offsets[key] - 1}")
                next_offsets[key] = offset + 1
        consumer.close()


@contextmanager
def reading(bootstrap: str, topics: Sequence[str], transactional: str) -> Iterator[Reader]:
    reader = Reader(bootstrap, topics, transactional)
    reader.thread.start()
    try:
        yield reader
    finally:
        reader.stop.set()
        reader.thread.join()


class Slow(NamedTuple):
    """Gateways on a slow Pulsar."""

    gateways: list[GatewayProcess]
    admin: SlowAdminProxy
    broker: SlowBrokerProxy

    @property
    def bootstrap(self) -> str:
        return ",".join(gateway.bootstrap for gateway in self.gateways)

    def end(self) -> None:
        """From now on, Pulsar is as fast as it can."""
        self.admin.late_share = self.broker.late_share = 0.0


@pytest.fixture
def slow(pulsar: PulsarStandalone, tmp_path: Path) -> Iterator[Slow]:
    with SlowAdminProxy(pulsar.admin_url).running() as admin, SlowBrokerProxy(pulsar.service_url).running() as broker:
        section = {"namespace": unique_topic("slow"), "service_url": broker.service_url, "admin_url": admin.url}
        found = [gateway_on(pulsar, tmp_path / name, pulsar=section) for name in ("one", "two")]
        with ExitStack() as stack:
            for gateway in found:
                gateway.start()
                stack.callback(gateway.kill)
            for gateway in found:
                gateway.wait_ready()
            yield Slow(found, admin, broker)


def test_what_is_late_is_not_missing(slow: Slow) -> None:
    seed = int(os.environ.get("SLOW_SEED", "0")) or random.randrange(1, 1_000_000)
    print(f"SLOW_SEED={seed}")
    chance = random.Random(seed)
    bootstrap = slow.bootstrap
    transactional, idempotent = unique_topic("transactional"), unique_topic("idempotent")
    for topic in (transactional, idempotent):
        create_topic(bootstrap, topic, PARTITIONS)
    options = {"linger_ms": 0, "batch_num_messages": 3, "enable_idempotence": True, "message_timeout_ms": DELIVERY_MS}
    senders = [Sender(bootstrap, idempotent, partition=number, **options) for number in range(PARTITIONS)]
    with (
        sending(senders),
        writing(bootstrap, transactional, PARTITIONS, WRITERS) as writers,
        reading(bootstrap, (transactional, idempotent), transactional) as reader,
    ):
        for _ in range(RESTARTS):
            time.sleep(PAUSE_S)
            gateway = chance.choice(slow.gateways)
            (gateway.kill if chance.random() < 0.5 else gateway.stop)()
            gateway.start()
            gateway.wait_ready()
        slow.end()
    assert reader.faults == []
    for partition, sender in enumerate(senders):
        sender.flush()
        assert sender.errors == []
        assert read_all(bootstrap, idempotent, partition) == sender.sent
    check_transactions(bootstrap, transactional, PARTITIONS, writers)
