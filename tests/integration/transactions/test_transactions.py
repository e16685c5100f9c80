"""Transactions of librdkafka's producer: commit, abort, fence, time out; the same against Apache Kafka."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tests.integration.confluent import (
    TIMEOUT_S,
    Record,
    assigned,
    consume,
    create_topic,
    delete_topic,
    offsets_of,
    produce,
    read_all_values,
    take,
)
from tests.integration.native import wait_for
from tests.integration.transactional import await_markers, read, transaction_state
from tests.support.names import unique_topic

TRANSACTION_MS = 600_000
"""On a busy machine, a transaction that survives a gateway may take longer than the usual minute."""
COMMITTED: dict[str, Any] = {"isolation_level": "read_committed"}
UNCOMMITTED: dict[str, Any] = {"isolation_level": "read_uncommitted"}


def transactional(bootstrap: str, name: str, **config: Any) -> Producer:
    """A producer whose transactions are initialized."""
    settings = {f"{key.replace('_', '.')}": value for key, value in config.items()}
    known: dict[str, Any] = {"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0}
    producer = Producer(known | {"transaction.timeout.ms": TRANSACTION_MS} | settings)
    producer.init_transactions(TIMEOUT_S)
    return producer


def write(producer: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    """When it returns, the values are in the log."""
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def values(bootstrap: str, topic: str, count: int, partition: int = 0, **options: Any) -> list[bytes | None]:
    return [message.value() for message in consume(bootstrap, topic, count, partition=partition, **options)]


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = unique_topic("transactions")
    create_topic(bootstrap, name, partitions=3)
    return name


def test_what_is_committed_is_read_and_what_is_aborted_is_not(bootstrap: str, topic: str) -> None:
    producer = transactional(bootstrap, unique_topic("id"))
    for number in range(6):
        producer.begin_transaction()
        for partition in range(3):
            write(producer, topic, b"%d" % number, partition=partition)
        if number % 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    await_markers(bootstrap, topic)
    for partition in range(3):
        produce(bootstrap, topic, [Record(b"plain")], partition=partition)
        assert values(bootstrap, topic, 4, partition, **COMMITTED) == [b"0", b"2", b"4", b"plain"]
        every = consume(bootstrap, topic, 7, partition=partition, **UNCOMMITTED)
        assert [message.value() for message in every] == [b"0", b"1", b"2", b"3", b"4", b"5", b"plain"]
        assert offsets_of(every) == [0, 2, 4, 6, 8, 10, 12]  # a marker has an offset of its own


def test_an_open_transaction_holds_back_what_comes_behind(bootstrap: str, topic: str) -> None:
    producer = transactional(bootstrap, unique_topic("id"))
    producer.begin_transaction()
    write(producer, topic, b"open")
    produce(bootstrap, topic, [Record(b"plain")])
    assert values(bootstrap, topic, 2, **UNCOMMITTED) == [b"open", b"plain"]
    with assigned(bootstrap, topic, **COMMITTED) as consumer:
        assert consumer.consume(1, 1.0) == []
        producer.commit_transaction(TIMEOUT_S)
        assert [message.value() for message in take(consumer, 2)] == [b"open", b"plain"]


def test_a_newer_producer_fences_the_older_one(bootstrap: str, topic: str) -> None:
    name = unique_topic("id")
    old = transactional(bootstrap, name)
    old.begin_transaction()
    write(old, topic, b"old")
    new = transactional(bootstrap, name)
    with pytest.raises(KafkaException) as raised:
        old.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    new.begin_transaction()
    write(new, topic, b"new")
    new.commit_transaction(TIMEOUT_S)
    await_markers(bootstrap, topic)
    assert [value for _, value in read_all_values(bootstrap, topic)] == [b"new"]


def test_a_transaction_of_a_dead_producer_times_out(bootstrap: str, topic: str) -> None:
    gone = transactional(bootstrap, unique_topic("id"), transaction_timeout_ms=1_000)
    gone.begin_transaction()
    write(gone, topic, b"gone")
    produce(bootstrap, topic, [Record(b"plain")])
    assert values(bootstrap, topic, 1, **COMMITTED) == [b"plain"]


@pytest.mark.parametrize(("commits", "state"), [(True, "CompleteCommit"), (False, "CompleteAbort")])
def test_a_topic_is_deleted_with_an_open_transaction(bootstrap: str, topic: str, commits: bool, state: str) -> None:
    """It ends in what is left, and the producer goes on."""
    name, gone = unique_topic("id"), unique_topic("gone")
    create_topic(bootstrap, gone, partitions=2)
    producer = transactional(bootstrap, name)
    producer.begin_transaction()
    for partition in range(2):
        write(producer, gone, b"gone", partition=partition)
    write(producer, topic, b"kept")
    delete_topic(bootstrap, gone)
    end = producer.commit_transaction if commits else producer.abort_transaction
    end(TIMEOUT_S)
    wait_for(lambda: transaction_state(bootstrap, name) == state, "the transaction ends")
    producer.begin_transaction()
    write(producer, topic, b"next")
    producer.commit_transaction(TIMEOUT_S)
    assert read(bootstrap, topic) == [b"kept", b"next"][not commits :]


def test_a_transaction_of_nothing(bootstrap: str, topic: str) -> None:
    producer = transactional(bootstrap, unique_topic("id"))
    for _ in range(2):
        producer.begin_transaction()
        producer.commit_transaction(TIMEOUT_S)
        producer.begin_transaction()
        producer.abort_transaction(TIMEOUT_S)
    producer.begin_transaction()
    write(producer, topic, b"something")
    producer.commit_transaction(TIMEOUT_S)
    assert values(bootstrap, topic, 1, **COMMITTED) == [b"something"]
