"""kafka-transactions.sh (KIP-664): the lists and descriptions of transactions, and one that an operator aborts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from gateway.coordination.partition.coordinators import partition_of
from tests.integration.confluent import (
    TIMEOUT_S,
    Record,
    commit,
    committed,
    consume,
    create_topic,
    list_topics,
    produce,
)
from tests.integration.transactions.test_transactions import COMMITTED, TRANSACTION_MS, transactional, write
from tests.support.java_programs.kafka_tools import KafkaTools
from tests.support.names import unique_topic

COMMAND = "org.apache.kafka.tools.TransactionsCommand"


@pytest.fixture
def tools(bootstrap: str) -> Iterator[KafkaTools]:
    with ExitStack() as stack:
        yield stack.enter_context(KafkaTools(bootstrap))


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = unique_topic("transactions")
    create_topic(bootstrap, name, partitions=2)
    return name


@pytest.fixture
def opened(bootstrap: str, topic: str) -> tuple[str, Producer]:
    """A transaction with a record in partition 0, and its transactional id."""
    name = unique_topic("id")
    producer = transactional(bootstrap, name)
    producer.begin_transaction()
    write(producer, topic, b"open")
    return name, producer


def rows(tools: KafkaTools, *arguments: str) -> list[dict[str, str]]:
    printed = tools(COMMAND, *arguments)
    assert printed.status == 0, printed.text
    head, *lines = [line.split("\t") for line in printed.text.splitlines() if line.strip()]
    names = [name.strip() for name in head]
    return [dict(zip(names, (cell.strip() for cell in line), strict=True)) for line in lines]


def test_what_is_open_and_what_is_complete(
    tools: KafkaTools, opened: tuple[str, Producer], bootstrap: str, topic: str
) -> None:
    name, producer = opened
    [listed] = [row for row in rows(tools, "list") if row["TransactionalId"] == name]
    assert listed["TransactionState"] == "Ongoing"
    [described] = rows(tools, "describe", "--transactional-id", name)
    assert described["ProducerId"] == listed["ProducerId"]
    assert (described["ProducerEpoch"], described["TransactionTimeoutMs"]) == ("0", str(TRANSACTION_MS))
    assert described["TopicPartitions"] == f"{topic}-0"
    [writing] = rows(tools, "describe-producers", "--topic", topic, "--partition", "0")
    assert (writing["ProducerId"], writing["CurrentTransactionStartOffset"]) == (listed["ProducerId"], "0")
    # Even with a very short maximum it does not count as hanging, because its coordinator knows it.
    assert rows(tools, "find-hanging", "--topic", topic, "--max-transaction-timeout", "0") == []
    producer.commit_transaction(TIMEOUT_S)
    [described] = rows(tools, "describe", "--transactional-id", name)
    assert described["TransactionState"] in {"PrepareCommit", "CompleteCommit"}
    assert [message.value() for message in consume(bootstrap, topic, 1, **COMMITTED)] == [b"open"]
    [writing] = rows(tools, "describe-producers", "--topic", topic, "--partition", "0")
    assert (writing["LatestCoordinatorEpoch"] == "-1", writing["CurrentTransactionStartOffset"]) == (False, "None")


def test_an_operator_aborts_a_transaction(
    tools: KafkaTools, opened: tuple[str, Producer], bootstrap: str, topic: str
) -> None:
    """The tool acts as the coordinator in one partition. Later writes of the producer are normal."""
    _, producer = opened
    produce(bootstrap, topic, [Record(b"behind")])
    aborted = tools(COMMAND, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert aborted.status == 0, aborted.text
    assert [message.value() for message in consume(bootstrap, topic, 1, **COMMITTED)] == [b"behind"]
    producer.commit_transaction(TIMEOUT_S)
    producer.begin_transaction()
    write(producer, topic, b"next")
    producer.commit_transaction(TIMEOUT_S)
    assert [message.value() for message in consume(bootstrap, topic, 2, **COMMITTED)] == [b"behind", b"next"]


def test_an_operator_aborts_the_offsets_of_a_group(
    tools: KafkaTools, opened: tuple[str, Producer], bootstrap: str, topic: str
) -> None:
    name, producer = opened
    group, offsets_topic = unique_topic("group"), "__consumer_offsets"
    commit(bootstrap, group, topic, 1)
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": group})) as consumer:
        offsets = [TopicPartition(topic, 0, 5)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
    count = len(list_topics(bootstrap, offsets_topic).topics[offsets_topic].partitions)
    place = ("--topic", offsets_topic, "--partition", str(partition_of(group, count)))
    [described] = rows(tools, "describe", "--transactional-id", name)
    [writing] = [
        row for row in rows(tools, "describe-producers", *place) if row["ProducerId"] == described["ProducerId"]
    ]
    aborted = tools(COMMAND, "abort", *place, "--start-offset", writing["CurrentTransactionStartOffset"])
    assert aborted.status == 0, aborted.text
    assert committed(bootstrap, group, topic) == [1]
    producer.commit_transaction(TIMEOUT_S)
    assert [message.value() for message in consume(bootstrap, topic, 1, **COMMITTED)] == [b"open"]
    assert committed(bootstrap, group, topic) == [1]
