"""A topic is deleted at one gateway, while groups that another one coordinates commit offsets in it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import TIMEOUT_S, create_topic
from tests.integration.servers import await_fleet, gateway_on, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

PARTITIONS, GROUPS, ROUNDS = 2, 16, 150
"""The groups are enough for each gateway to coordinate some. When gateways did not wait for each other, one of some
hundred rounds left a name that could not be used again: this test failed in one of two runs of 300 rounds."""
LONGEST_LIFE_S = 0.05


@pytest.fixture
def fleet(pulsar: PulsarStandalone, tmp_path: Path) -> Iterator[list[GatewayProcess]]:
    namespace = {"namespace": unique_topic("deletion")}
    with ExitStack() as stack:
        gateways = [
            stack.enter_context(running(gateway_on(pulsar, tmp_path / str(number), pulsar=namespace)))
            for number in range(3)
        ]
        await_fleet(gateways)
        yield gateways


@contextmanager
def committing(bootstrap: str, topic: str) -> Iterator[None]:
    """Groups that commit offsets as fast as they are answered, each with a thread of its own."""
    ended = threading.Event()

    def commit(group: str) -> None:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
        offset = 0
        while not ended.wait(0.01):
            offset += 1
            try:
                offsets = [TopicPartition(topic, number, offset) for number in range(PARTITIONS)]
                consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException:
                """The topic is deleted, or not created yet."""
        consumer.close()

    threads = [threading.Thread(target=commit, args=(f"{topic}-{number}",)) for number in range(GROUPS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(TIMEOUT_S)


def test_a_name_can_be_used_again(fleet: list[GatewayProcess]) -> None:
    """A cursor that Pulsar writes after it has deleted a partition stays for ever, and blocks the name."""
    bootstrap, topic = fleet[0].bootstrap, unique_topic("deletion")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with committing(bootstrap, topic):
        for _ in range(ROUNDS):
            create_topic(bootstrap, topic, PARTITIONS)
            time.sleep(random.uniform(0, LONGEST_LIFE_S))
            admin.delete_topics([topic])[topic].result(TIMEOUT_S)
