"""Consumers of many partitions that nobody has used yet, behind a gateway that may open few readers at a time."""

import time
from collections import defaultdict
from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import TIMEOUT_S, Sender, create_topic
from tests.integration.servers import gateway_on, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic

PARTITIONS = 60
RECORDS = 20
MAX_READERS = 16


@pytest.fixture(scope="module")
def cramped(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    limits = {"max_readers": MAX_READERS}
    server = gateway_on(
        pulsar, tmp_path_factory.mktemp("cramped"), limits=limits, pulsar={"namespace": unique_topic("many")}
    )
    with running(server):
        yield server


@pytest.fixture
def lagging(cramped: GatewayProcess) -> str:
    """A topic whose records are in Pulsar only."""
    topic = unique_topic("lagging")
    create_topic(cramped.bootstrap, topic, PARTITIONS)
    senders = [Sender(cramped.bootstrap, topic, partition=partition) for partition in range(PARTITIONS)]
    for partition, sender in enumerate(senders):
        sender.send(b"%d-%d" % (partition, number) for number in range(RECORDS))
    for sender in senders:
        sender.flush()
        assert not sender.errors
    cramped.stop()
    cramped.start()
    cramped.wait_ready()
    return topic


def test_more_lagging_partitions_than_readers(cramped: GatewayProcess, lagging: str) -> None:
    """Each partition is read to its end, in order, by one consumer of all of them."""
    found: dict[int, list[bytes | None]] = defaultdict(list)
    consumer = Consumer({"bootstrap.servers": cramped.bootstrap, "group.id": "none", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(lagging, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
        deadline = time.monotonic() + TIMEOUT_S
        while sum(map(len, found.values())) < PARTITIONS * RECORDS and time.monotonic() < deadline:
            for message in consumer.consume(1_000, 0.2):
                assert message.error() is None, message.error()
                partition = message.partition()
                assert partition is not None
                found[partition].append(message.value())
    finally:
        consumer.close()
    expected = {
        partition: [b"%d-%d" % (partition, number) for number in range(RECORDS)] for partition in range(PARTITIONS)
    }
    assert found == expected
