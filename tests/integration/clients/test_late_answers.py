"""Members of kafka-python whose responses are late, in the order that loses a join in version 3.0.12.

The library loses a completed join if the topic's metadata changed since it sent its subscription and `poll` ends
between the responses to JoinGroup and SyncGroup, also with Apache Kafka. A member that subscribes before it waits for
the topic's partitions is not affected, as the guide for migration says. Neither is one that is mended as those of
`fleet_member` are.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka.protocol.api_key import ApiKey

from deploy.local.process import bound, free_port
from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import create_topic
from tests.integration.fleet_member import POLL_MS
from tests.integration.kafka_proxy import KafkaProxy
from tests.integration.native import wait_for
from tests.integration.servers import gateway_on, running
from tests.support.names import unique_topic

RECORDS = 20
READ_TIMEOUT_S = 60.0
LOST_S = 10.0
"""A join that takes this long is lost: heartbeats and metadata requests continue, and no other request is sent."""
MEMBER = """
import json, sys, time, kafka
from tests.integration.fleet_member import POLL_MS
from tests.integration.kafka_python_mended import mend

class Listener(kafka.ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked): pass
    def on_partitions_assigned(self, assigned): pass

bootstrap, group, topic = sys.argv[1:]
consumer = kafka.KafkaConsumer(
    bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", metadata_max_age_ms=5_000
)
BEGIN
while True:
    for records in consumer.poll(POLL_MS).values():
        print(json.dumps({"event": "read", "records": len(records) * [0]}), flush=True)
"""
SUBSCRIBE = "consumer.subscribe([topic], listener=Listener())\n"
AWAIT_PARTITIONS = "while not consumer.partitions_for_topic(topic): time.sleep(0.2)\n"
SUBSCRIBES_LATE = MEMBER.replace("BEGIN", AWAIT_PARTITIONS + SUBSCRIBE)
SUBSCRIBES_FIRST = MEMBER.replace("BEGIN", SUBSCRIBE + AWAIT_PARTITIONS)
SUBSCRIBES_LATE_MENDED = MEMBER.replace("BEGIN", "mend(consumer)\n" + AWAIT_PARTITIONS + SUBSCRIBE)


class LateAnswers:
    """From a JoinGroup on, Metadata responses wait for the SyncGroup, whose response arrives two polls late."""

    def __init__(self) -> None:
        self.joins_held = 0
        self._synced = threading.Event()
        self._synced.set()

    def asked(self, key: ApiKey) -> None:
        if key is ApiKey.JoinGroup:
            self._synced.clear()
        elif key is ApiKey.SyncGroup:
            self._synced.set()

    async def before_answer(self, key: ApiKey) -> None:
        if key is ApiKey.Metadata:
            while not self._synced.is_set():
                await asyncio.sleep(0.01)
        elif key is ApiKey.SyncGroup:
            self.joins_held += 1
            await asyncio.sleep(2 * POLL_MS / 1000)


@contextmanager
def behind_proxy(pulsar: PulsarStandalone, folder: Path, late: LateAnswers) -> Iterator[str]:
    port = free_port()
    gateway = gateway_on(
        pulsar, folder, kafka={"advertised_port": port}, pulsar={"namespace": unique_topic("late")}
    )  # the only gateway of its namespace, so that clients are not redirected to another one
    with running(gateway):
        proxy = KafkaProxy(port, gateway.config["kafka"]["port"], late.asked, late.before_answer)
        with proxy.running():
            yield f"127.0.0.1:{port}"


@contextmanager
def member(*command: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(bound([sys.executable, *command]), stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read_count(process: subprocess.Popen[str], timeout_s: float) -> int:
    """The number of records when the member has read all, or at the timeout."""
    timer = threading.Timer(timeout_s, process.kill)
    timer.start()
    end = time.monotonic() + timeout_s
    count = 0
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        if event.get("event") == "read":
            count += len(event["records"])
        if count >= RECORDS:
            break
    timer.cancel()
    assert count >= RECORDS or time.monotonic() >= end, "the member has failed"
    return count


@pytest.fixture
def late() -> LateAnswers:
    return LateAnswers()


def test_members_with_late_answers(pulsar: PulsarStandalone, tmp_path: Path, late: LateAnswers) -> None:
    with behind_proxy(pulsar, tmp_path, late) as bootstrap:
        topic = unique_topic("late")
        create_topic(bootstrap, topic, 1)
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(RECORDS):
            producer.produce(topic, b"%d" % number)
        assert producer.flush(30) == 0
        with member("-c", SUBSCRIBES_LATE, bootstrap, unique_topic("subscribes-late"), topic) as process:
            wait_for(lambda: late.joins_held, "the member joins")
            assert read_count(process, LOST_S) == 0, "kafka-python keeps its joins now: the guide can say less"
        for script in (SUBSCRIBES_FIRST, SUBSCRIBES_LATE_MENDED):
            late.joins_held = 0
            with member("-c", script, bootstrap, unique_topic("goes-on"), topic) as process:
                assert read_count(process, READ_TIMEOUT_S) == RECORDS
            assert late.joins_held
