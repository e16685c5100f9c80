"""Consumers of many partitions that have not been used yet, at a gateway that may open few readers at the same time."""

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import TIMEOUT_S, Sender, create_topic
from tests.integration.native import wait_for
from tests.integration.servers import gateway_on, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import connected

PARTITIONS = 60
RECORDS = 20
MAX_READERS = 16
WIDE = 1_001
MARKED_WITHIN_S = 120.0


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
    """One consumer of all partitions reads each to its end, in order."""
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


def test_a_transaction_in_a_thousand_partitions(gateway: GatewayProcess) -> None:
    """Every partition gets its marker, although no client has used it before."""
    topic, transactional_id = unique_topic("wide"), unique_topic("transaction")
    create_topic(gateway.bootstrap, topic, WIDE)
    with connected(gateway.bootstrap) as client:

        def init() -> dict[str, Any]:
            fields = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
            return client.call("InitProducerId", 4, **fields, producer_id=-1, producer_epoch=-1)

        wait_for(lambda: init()["error_code"] == 0, "the coordinator is ready")
        found = init()
        who = {
            "transactional_id": transactional_id,
            **{name: found[name] for name in ("producer_id", "producer_epoch")},
        }
        rows = [{"name": topic, "partitions": [*range(WIDE)]}]
        named = {f"v3_and_below_{name}": value for name, value in who.items()}
        added = client.call("AddPartitionsToTxn", 3, v3_and_below_topics=rows, **named)
        (answer,) = added["results_by_topic_v3_and_below"]
        assert {each["partition_error_code"] for each in answer["results_by_partition"]} == {0}
        assert client.call("EndTxn", 3, committed=True, **who)["error_code"] == 0

        def complete() -> bool:
            (state,) = client.call("DescribeTransactions", 0, transactional_ids=[transactional_id])[
                "transaction_states"
            ]
            return bool(state["transaction_state"] == "CompleteCommit")

        wait_for(complete, "all markers are written", MARKED_WITHIN_S)
        asked = [{"partition_index": number, "timestamp": -1, "current_leader_epoch": -1} for number in range(WIDE)]
        fields = {"replica_id": -1, "isolation_level": 1, "topics": [{"name": topic, "partitions": asked}]}
        (listed,) = client.call("ListOffsets", 5, **fields)["topics"]
        # A marker is sent again if its answer takes too long, and may then be written twice, as in Kafka.
        assert {each["error_code"] for each in listed["partitions"]} == {0}
        assert min(each["offset"] for each in listed["partitions"]) == 1
