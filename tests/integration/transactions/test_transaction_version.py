"""`transaction.version` 2 (KIP-890): producing adds the partition, each end raises the epoch; the same as in Kafka 4.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.clients.api_versions import newest_kafka
from tests.integration.confluent import committed, consume, create_topic
from tests.integration.transactions.test_transactions import COMMITTED
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import RawClient, connected
from tests.support.raw_producer import NONE, WAIT_S, RawProducer

TRANSACTION = 1
INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, PRODUCER_FENCED, TRANSACTION_ABORTABLE = 47, 48, 90, 120


@pytest.fixture(scope="module", params=["kafka 4", "gateway"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "gateway":
        gateway: GatewayProcess = request.getfixturevalue("gateway")
        yield gateway.bootstrap
        return
    with newest_kafka(tmp_path_factory.mktemp("kafka")) as address:
        yield address


@pytest.fixture
def client(bootstrap: str) -> Iterator[RawClient]:
    with connected(bootstrap) as connection:
        yield connection


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = unique_topic("version")
    create_topic(bootstrap, name, partitions=2)
    return name


@pytest.fixture
def producer(client: RawClient) -> RawProducer:
    made = RawProducer(client, unique_topic("id"))
    client.call("FindCoordinator", 4, key_type=TRANSACTION, coordinator_keys=[made.name])  # creates Kafka's topic
    made.init()
    return made


def test_the_version_is_a_feature(client: RawClient) -> None:
    software = {"client_software_name": "raw", "client_software_version": "1"}
    answer = client.call("ApiVersions", 4, **software)
    [level] = [each for each in answer["finalized_features"] if each["name"] == "transaction.version"]
    assert (level["min_version_level"], level["max_version_level"]) == (2, 2)
    [supported] = [each for each in answer["supported_features"] if each["name"] == "transaction.version"]
    assert (supported["min_version"], supported["max_version"]) == (0, 2)
    assert answer["finalized_features_epoch"] >= 0
    older = client.call("ApiVersions", 3, **software)
    assert "transaction.version" not in [each["name"] for each in older["supported_features"]]


def test_producing_adds_and_ending_raises_the_epoch(bootstrap: str, producer: RawProducer, topic: str) -> None:
    for number in range(4):
        for partition in range(2):
            assert producer.write(topic, f"{number}", partition=partition) == NONE
        producer.finish(committed=number % 2 == 0)
    for partition in range(2):
        read = consume(bootstrap, topic, 2, partition=partition, **COMMITTED)
        assert [(message.value() or b"").rstrip(b".") for message in read] == [b"00", b"20"]


def test_an_end_may_be_asked_for_again(producer: RawProducer, topic: str) -> None:
    assert producer.write(topic, "a") == NONE
    epoch = producer.epoch
    producer.finish(committed=True)
    again = producer.end(committed=True, epoch=epoch)
    assert (again["error_code"], again["producer_id"], again["producer_epoch"]) == (NONE, producer.id, producer.epoch)
    assert producer.end(committed=False, epoch=epoch)["error_code"] == INVALID_TXN_STATE


def test_nothing_can_be_aborted_but_not_committed(producer: RawProducer) -> None:
    assert producer.end(committed=True)["error_code"] == INVALID_TXN_STATE
    producer.finish(committed=False)


def test_a_late_batch_is_of_an_epoch_that_is_over(producer: RawProducer, topic: str) -> None:
    assert producer.write(topic, "a") == NONE
    epoch = producer.epoch
    producer.finish(committed=True)
    assert producer.write(topic, "next") == NONE  # all markers of the previous transaction are written
    late = RawProducer(producer.client, producer.name, producer.id, epoch)
    assert late.write(topic, "late", sequence=1) == INVALID_PRODUCER_EPOCH
    assert late.end(committed=True)["error_code"] == PRODUCER_FENCED


def test_a_producer_that_timed_out_continues_with_the_next_epoch(producer: RawProducer, topic: str) -> None:
    """Kafka 3.9 fences the producer: there, the epoch that aborts its transaction is not its own."""
    producer.init(timeout_ms=200)
    assert producer.write(topic, "a") == NONE
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        [found] = producer.client.call("DescribeTransactions", 0, transactional_ids=[producer.name])[
            "transaction_states"
        ]
        if found["transaction_state"] == "CompleteAbort":
            break
        time.sleep(0.05)
    epoch = producer.epoch
    producer.init()
    assert producer.epoch == epoch + 1
    assert producer.write(topic, "b") == NONE
    producer.finish(committed=True)


def test_older_clients_add_their_partitions(producer: RawProducer, topic: str) -> None:
    assert producer.write(topic, "a", version=11) == TRANSACTION_ABORTABLE
    producer.finish(committed=False)
    for version, code in ((4, TRANSACTION_ABORTABLE), (3, INVALID_TXN_STATE)):
        assert producer.commit_offset(unique_topic("group"), topic, 1, version=version) == code


def test_committing_offsets_adds_the_group(bootstrap: str, producer: RawProducer, topic: str) -> None:
    """The next transaction follows immediately: late markers would affect its offsets."""
    group = unique_topic("group")
    for offset in range(6):
        assert producer.commit_offset(group, topic, offset) == NONE
        if offset == 2:
            assert producer.write(topic, "with a record") == NONE
        producer.finish(committed=offset < 5)
    assert committed(bootstrap, group, topic) == [4]


def test_late_offsets_are_of_an_epoch_that_is_over(bootstrap: str, producer: RawProducer, topic: str) -> None:
    group = unique_topic("group")
    assert producer.commit_offset(group, topic, 1) == NONE
    late = RawProducer(producer.client, producer.name, producer.id, producer.epoch)
    producer.finish(committed=True)
    assert producer.commit_offset(group, topic, 2) == NONE
    assert late.commit_offset(group, topic, 3) == INVALID_PRODUCER_EPOCH
    producer.finish(committed=True)
    assert late.commit_offset(group, topic, 3) == INVALID_PRODUCER_EPOCH
    assert committed(bootstrap, group, topic) == [2]
