"""Consume, transform, produce with librdkafka: output and input offsets are committed together or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import (
    TIMEOUT_S,
    Record,
    commit,
    committed,
    consume,
    create_topic,
    produce,
    read_all_values,
)
from tests.integration.coordination.test_mirror import (
    BATCH_RECORDS,
    BATCHES,
    NAMESPACE,
    SETTLED_S,
    Subscription,
    write_entries,
)
from tests.integration.servers import gateway_on, running
from tests.integration.transactional import await_markers
from tests.integration.transactions.test_transactions import COMMITTED, transactional, write
from tests.integration.transactions.test_transactions_in_a_fleet import FORMS, fleet_of_two, port
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import connected

PARTITIONS, RECORDS = 2, 60
ROUND_RECORDS = 10
BLOCKED_S = 1.0
UNSTABLE_OFFSET_COMMIT, GROUP = 88, 0


def new_topics(bootstrap: str, partitions: int = 1) -> tuple[str, str]:
    source, target = unique_topic("copied-from"), unique_topic("copied-to")
    for topic in (source, target):
        create_topic(bootstrap, topic, partitions)
    return source, target


@contextmanager
def member(bootstrap: str, group: str, topic: str) -> Iterator[Consumer]:
    settings = {
        "bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest",
        "isolation.level": "read_committed", "session.timeout.ms": 6_000,
    }  # fmt: skip
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        yield consumer


def copy(consumer: Consumer, producer: Producer, target: str, messages: list[Message]) -> None:
    """Write and commit offsets in the open transaction."""
    behind: dict[int, int] = {}
    for message in messages:
        partition, offset = message.partition(), message.offset()
        assert partition is not None and offset is not None
        write(producer, target, message.value() or b"", partition=partition)
        behind[partition] = offset + 1
    topic = messages[0].topic() or ""
    offsets = [TopicPartition(topic, partition, offset) for partition, offset in behind.items()]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)


def some(consumer: Consumer, timeout_s: float = TIMEOUT_S) -> list[Message]:
    """The next messages, at most ROUND_RECORDS."""
    found: list[Message] = []
    deadline = time.monotonic() + timeout_s
    while not found and time.monotonic() < deadline:
        found = [each for each in consumer.consume(ROUND_RECORDS, 0.2) if each.error() is None]
    return found


def rewind(consumer: Consumer) -> None:
    """Seek to the committed offsets, as clients do after an abort."""
    for each in consumer.committed(consumer.assignment(), TIMEOUT_S):
        consumer.seek(TopicPartition(each.topic, each.partition, each.offset if each.offset >= 0 else OFFSET_BEGINNING))


def test_the_output_is_the_input_though_every_third_transaction_is_aborted(bootstrap: str) -> None:
    source, target = new_topics(bootstrap, PARTITIONS)
    written = [[b"%d-%d" % (partition, number) for number in range(RECORDS)] for partition in range(PARTITIONS)]
    for partition, values in enumerate(written):
        produce(bootstrap, source, [Record(value) for value in values], partition=partition)
    producer, group = transactional(bootstrap, unique_topic("id")), unique_topic("copiers")
    copied = rounds = 0
    with member(bootstrap, group, source) as consumer:
        while copied < PARTITIONS * RECORDS:
            messages = some(consumer)
            assert messages, f"{copied} are copied, and no more come"
            rounds += 1
            producer.begin_transaction()
            copy(consumer, producer, target, messages)
            if rounds % 3 == 0:
                producer.abort_transaction(TIMEOUT_S)
                rewind(consumer)
            else:
                producer.commit_transaction(TIMEOUT_S)
                copied += len(messages)
    await_markers(bootstrap)
    for partition, values in enumerate(written):
        assert [value for _, value in read_all_values(bootstrap, target, partition)] == values
    assert committed(bootstrap, group, source, PARTITIONS) == [RECORDS] * PARTITIONS


def test_a_copier_that_crashes_in_the_middle(bootstrap: str) -> None:
    """Its successor reads nothing before the transaction is aborted, and everything afterwards."""
    source, target = new_topics(bootstrap)
    values = [b"%d" % number for number in range(ROUND_RECORDS)]
    produce(bootstrap, source, [Record(value) for value in values])
    name, group = unique_topic("id"), unique_topic("copiers")
    commit(bootstrap, group, source, 0)
    crashed = transactional(bootstrap, name)
    crashed.begin_transaction()
    with member(bootstrap, group, source) as consumer:
        copy(consumer, crashed, target, some(consumer))
    with member(bootstrap, group, source) as consumer:
        assert some(consumer, BLOCKED_S) == [], "its offset is not known yet"
        successor = transactional(bootstrap, name)
        successor.begin_transaction()
        messages: list[Message] = []
        while len(messages) < len(values):
            found = some(consumer)
            assert found, f"no more come after {len(messages)}"
            messages += found
        assert [message.value() for message in messages] == values
        copy(consumer, successor, target, messages)
        successor.commit_transaction(TIMEOUT_S)
    await_markers(bootstrap)
    assert [value for _, value in read_all_values(bootstrap, target)] == values
    assert committed(bootstrap, group, source) == [ROUND_RECORDS]


def group_port(gateway: GatewayProcess, group: str) -> int:
    with connected(gateway.bootstrap) as client:
        found = client.call("FindCoordinator", 3, key=group, key_type=GROUP)
    assert found["error_code"] == 0
    return int(found["port"])


def fetch(gateway: GatewayProcess, group: str, topic: str, *, stable: bool) -> tuple[int, int]:
    """(error code, offset) of the partition, when the coordinator answers."""
    asked = [{"name": topic, "partition_indexes": [0]}]
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        with connected(gateway.bootstrap) as client:
            found = client.call("OffsetFetch", 7, group_id=group, topics=asked, require_stable=stable)
        if not found["error_code"]:
            row = found["topics"][0]["partitions"][0]
            return row["error_code"], row["committed_offset"]
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


@pytest.mark.parametrize("committing", [True, False])
@pytest.mark.parametrize("leave", [GatewayProcess.kill, GatewayProcess.stop])
def test_the_groups_coordinator_changes_while_the_transaction_is_open(
    pulsar: PulsarStandalone, tmp_path: Path, leave: Callable[[GatewayProcess], None], committing: bool
) -> None:
    with fleet_of_two(pulsar, tmp_path, FORMS[0]) as (survivor, victim):
        bootstrap, (source, target) = survivor.bootstrap, new_topics(survivor.bootstrap)
        both = f"{survivor.bootstrap},{victim.bootstrap}"
        group = next(name for name in map(unique_topic, ["g"] * 100) if group_port(survivor, name) == port(victim))
        commit(bootstrap, group, source, 1)
        produce(bootstrap, source, [Record(b"in")] * 5)
        producer = transactional(both, unique_topic("id"))
        producer.begin_transaction()
        write(producer, target, b"out")
        with closing(Consumer({"bootstrap.servers": both, "group.id": group})) as consumer:
            offsets = [TopicPartition(source, 0, 5)]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
        assert fetch(victim, group, source, stable=False) == (0, 1)
        leave(victim)
        assert fetch(survivor, group, source, stable=True) == (UNSTABLE_OFFSET_COMMIT, -1)
        assert fetch(survivor, group, source, stable=False) == (0, 1)
        (producer.commit_transaction if committing else producer.abort_transaction)(TIMEOUT_S)
        assert committed(bootstrap, group, source) == [5 if committing else 1]
        if committing:
            assert consume(bootstrap, target, 1, **COMMITTED)[0].value() == b"out"
        else:
            assert read_all_values(bootstrap, target) == []


@pytest.mark.parametrize("form", FORMS)
def test_groups_and_transactions_on_different_gateways(pulsar: PulsarStandalone, tmp_path: Path, form: str) -> None:
    with fleet_of_two(pulsar, tmp_path, form) as fleet:
        commit_in_many_groups(fleet[0].bootstrap)


def commit_in_many_groups(bootstrap: str) -> None:
    source, target = new_topics(bootstrap)
    groups = [unique_topic("g") for _ in range(6)]
    for number, group in enumerate(groups):
        producer = transactional(bootstrap, unique_topic("id"))
        with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": group})) as consumer:
            for offset, end in ((9, producer.abort_transaction), (number, producer.commit_transaction)):
                producer.begin_transaction()
                write(producer, target, b"%d %d" % (number, offset))
                offsets = [TopicPartition(source, 0, offset)]
                producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
                end(TIMEOUT_S)
    assert [committed(bootstrap, group, source) for group in groups] == [[number] for number in range(len(groups))]


def test_subscriptions_hear_of_committed_transactions_only(pulsar: PulsarStandalone, tmp_path: Path) -> None:
    with running(gateway_on(pulsar, tmp_path, pulsar={"namespace": NAMESPACE.partition("/")[2]})) as gateway:
        bootstrap, topic = gateway.bootstrap, unique_topic("mirror")
        create_topic(bootstrap, topic)
        write_entries(gateway, topic)
        producer, group = transactional(bootstrap, unique_topic("id")), unique_topic("group")
        subscription = Subscription(pulsar, topic, group)
        commit(bootstrap, group, topic, 0)
        subscription.await_state(BATCHES, 0)
        with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": group})) as consumer:
            for offset, end in (
                (2 * BATCH_RECORDS, producer.abort_transaction),
                (BATCH_RECORDS, producer.commit_transaction),
            ):
                producer.begin_transaction()
                offsets = [TopicPartition(topic, 0, offset)]
                producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
                time.sleep(SETTLED_S)
                assert subscription.state == (BATCHES, 0)
                end(TIMEOUT_S)
        subscription.await_state(BATCHES - 1, BATCH_RECORDS)
        assert committed(bootstrap, group, topic) == [BATCH_RECORDS]
