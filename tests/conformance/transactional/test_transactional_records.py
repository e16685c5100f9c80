"""Transactional batches and markers in a partition: Produce (key 0), v3 and later."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.conversation import Conversation, case
from tests.conformance.records import CONTROL, LZ4, TRANSACTIONAL, ZSTD, Record, batch, records
from tests.conformance.requests import (
    init_producer_id,
    produce,
    read_back,
)
from tests.conformance.transactions import (
    Transactional,
    one_segment,
    read_committed,
)

WITH_IDS = (3, 7, 8, 9, 11)
"""Versions of Produce with a transactional id, each with different error codes."""


def shared(conversation: Conversation, name: str = "transactional", **configs: str) -> str:
    topic = one_segment(conversation, name, configs={key.replace("_", "."): value for key, value in configs.items()})
    conversation.start_here(topic)
    return topic


def write(
    conversation: Conversation, version: int, producer: Transactional, topic: str, data: bytes, **more: Any
) -> None:
    produce(conversation, version, topic, data, **({"transactional_id": producer.transactional_id} | more))


@case("Produce", WITH_IDS)
def test_partition_that_was_added(conversation: Conversation, version: int) -> None:
    topic, producer = shared(conversation), Transactional(conversation)
    producer.add(3, {topic: [0]})
    write(conversation, version, producer, topic, producer.data(2))
    write(conversation, version, producer, topic, producer.data(1, sequence=2))
    write(conversation, version, producer, topic, producer.data(1, sequence=2))
    read_committed(conversation, topic, 0)
    read_back(conversation, topic)
    producer.finish(committed=True)
    read_committed(conversation, topic, 0)


@case("Produce", WITH_IDS)
def test_partition_that_was_not_added(conversation: Conversation, version: int) -> None:
    topic, producer = shared(conversation), Transactional(conversation)
    write(conversation, version, producer, topic, producer.data())
    producer.add(3, {topic: [1]})
    write(conversation, version, producer, topic, producer.data())
    read_committed(conversation, topic, 0)
    producer.finish(committed=False)


@case("Produce", WITH_IDS)
@pytest.mark.parametrize("is_added", [True, False])
def test_without_an_epoch(conversation: Conversation, version: int, is_added: bool) -> None:
    """If it were written, no coordinator would ever end its transaction."""
    topic, producer = shared(conversation), Transactional(conversation)
    if is_added:
        producer.add(3, {topic: [0]})
    for epoch in (-1, -2):
        write(conversation, version, producer, topic, producer.data(epoch=epoch))
    read_committed(conversation, topic, 0)
    read_back(conversation, topic)


@case("Produce", WITH_IDS)
def test_after_the_end(conversation: Conversation, version: int) -> None:
    topic, producer = shared(conversation), Transactional(conversation)
    producer.begin(topic, 2)
    producer.finish(committed=True)
    write(conversation, version, producer, topic, producer.data(1, sequence=2))
    read_committed(conversation, topic, 0)


@case("Produce", WITH_IDS)
def test_retry_of_what_is_committed(conversation: Conversation, version: int) -> None:
    topic, producer = shared(conversation), Transactional(conversation)
    producer.begin(topic, 2)
    producer.finish(committed=True)
    producer.add(3, {topic: [0]})
    write(conversation, version, producer, topic, producer.data(2))
    producer.finish(committed=True)
    read_committed(conversation, topic, 0)


@case("Produce", WITH_IDS)
@pytest.mark.parametrize("sequence", [0, 1, 2, 3, 9])
def test_sequence_of_the_next_transaction(conversation: Conversation, version: int, sequence: int) -> None:
    """Sequences continue from one transaction to the next."""
    topic, producer = shared(conversation), Transactional(conversation)
    producer.begin(topic, 2)
    producer.finish(committed=True)
    producer.add(3, {topic: [0]})
    write(conversation, version, producer, topic, producer.data(1, sequence=sequence, prefix="next"))
    read_back(conversation, topic)


@case("Produce", WITH_IDS)
@pytest.mark.parametrize("sequence", [0, 1, 5])
def test_first_sequence_of_an_epoch(conversation: Conversation, version: int, sequence: int) -> None:
    topic, producer = shared(conversation), Transactional(conversation)
    producer.begin(topic, 2)
    producer.epoch = producer.init(4)["producer_epoch"]
    producer.add(3, {topic: [0]})
    write(conversation, version, producer, topic, producer.data(1, sequence=sequence, prefix="next"))
    read_back(conversation, topic)


@case("Produce", WITH_IDS)
def test_fenced(conversation: Conversation, version: int) -> None:
    """Another producer has taken over the transactional id."""
    topic, producer = shared(conversation), Transactional(conversation)
    producer.begin(topic, 2)
    new = Transactional(conversation, name=producer.transactional_id)
    write(conversation, version, producer, topic, producer.data(1, sequence=2))
    new.begin(topic, 1)
    write(conversation, version, producer, topic, producer.data(1, sequence=2))
    new.finish(committed=True)
    read_committed(conversation, topic, 0)


@case("Produce", WITH_IDS)
@pytest.mark.parametrize("epoch", [1, 32767])
def test_epoch_of_the_future(conversation: Conversation, version: int, epoch: int) -> None:
    """Kafka asks the coordinator once for each transaction, so this batch is accepted; the marker is then never
    accepted."""
    topic, producer = (
        shared(conversation, f"transactional-future-{epoch}-{version}"),
        Transactional(conversation, stays_open=True),
    )
    producer.begin(topic)
    write(conversation, version, producer, topic, producer.data(1, sequence=0, epoch=epoch))
    write(conversation, version, producer, topic, producer.data(1, sequence=1))
    read_back(conversation, topic)


@case("Produce", WITH_IDS)
@pytest.mark.parametrize("epoch", [1, 32767])
def test_first_batch_of_a_future_epoch(conversation: Conversation, version: int, epoch: int) -> None:
    topic, producer = shared(conversation), Transactional(conversation)
    producer.add(3, {topic: [0]})
    write(conversation, version, producer, topic, producer.data(1, epoch=epoch))
    write(conversation, version, producer, topic, producer.data(1))
    read_back(conversation, topic)


@case("Produce", WITH_IDS)
def test_foreign_producer_id(conversation: Conversation, version: int) -> None:
    topic, producer, other = shared(conversation), Transactional(conversation), Transactional(conversation)
    producer.add(3, {topic: [0]})
    write(conversation, version, producer, topic, producer.data(1, producer_id=other.id))
    write(conversation, version, producer, topic, producer.data(1, producer_id=2**62))
    write(conversation, version, producer, topic, producer.data(), transactional_id=other.transactional_id)
    read_back(conversation, topic)


@case("Produce", WITH_IDS)
@pytest.mark.parametrize("transactional_id", [None, "", "nobody"])
def test_wrong_transactional_id(conversation: Conversation, version: int, transactional_id: str | None) -> None:
    topic, producer = shared(conversation), Transactional(conversation)
    producer.add(3, {topic: [0]})
    write(conversation, version, producer, topic, producer.data(), transactional_id=transactional_id)
    read_back(conversation, topic)


@case("Produce", WITH_IDS)
@pytest.mark.parametrize("attributes", [0, CONTROL, CONTROL | TRANSACTIONAL])
@pytest.mark.parametrize("added", [True, False])
def test_wrong_flags(conversation: Conversation, version: int, attributes: int, added: bool) -> None:
    topic, producer = shared(conversation), Transactional(conversation)
    if added:
        producer.add(3, {topic: [0]})
    write(conversation, version, producer, topic, producer.data(attributes=attributes))
    write(conversation, version, producer, topic, producer.data(1, sequence=1))
    read_back(conversation, topic)


@case("Produce", WITH_IDS)
@pytest.mark.parametrize("producer", [(-1, -1, -1), (7, -1, -1), (7, 0, -1), (-1, 0, 0)], ids=str)
def test_transactional_without_a_producer(
    conversation: Conversation, version: int, producer: tuple[int, int, int]
) -> None:
    topic = shared(conversation)
    data = batch(records(1), attributes=TRANSACTIONAL, producer=producer)
    produce(conversation, version, topic, data, transactional_id="some")
    produce(conversation, version, topic, data)
    read_back(conversation, topic)


@case("Produce", WITH_IDS)
def test_marker_from_a_client(conversation: Conversation, version: int) -> None:
    """Only the coordinator may write the bytes of a marker."""
    topic, producer = shared(conversation), Transactional(conversation)
    producer.begin(topic)
    marker = Record(b"\0\0\0\0\0\0", b"\0\0\0\1")
    data = batch([marker], attributes=CONTROL | TRANSACTIONAL, producer=(producer.id, producer.epoch, -1))
    write(conversation, version, producer, topic, data)
    read_committed(conversation, topic, 0)
    producer.finish(committed=True)


@case("Produce", WITH_IDS)
def test_idempotent_records_between(conversation: Conversation, version: int) -> None:
    """Of another producer, which has no transaction."""
    topic, producer = shared(conversation), Transactional(conversation)
    plain_id, plain_epoch = unnoted_producer(conversation)
    producer.begin(topic)
    data = batch(records(2, prefix="plain"), producer=(plain_id, plain_epoch, 0))
    produce(conversation, version, topic, data)
    read_committed(conversation, topic, 0)
    producer.finish(committed=False)
    read_committed(conversation, topic, 0)


@case("Produce", WITH_IDS)
@pytest.mark.parametrize("codec", [LZ4, ZSTD])
def test_compressed(conversation: Conversation, version: int, codec: int) -> None:
    topic, producer = shared(conversation), Transactional(conversation)
    producer.add(3, {topic: [0]})
    data = batch(records(5), codec, attributes=TRANSACTIONAL, producer=(producer.id, producer.epoch, 0))
    write(conversation, version, producer, topic, data)
    producer.finish(committed=True)
    read_committed(conversation, topic, 0)


@case("Produce", [11])
def test_log_append_time(conversation: Conversation, version: int) -> None:
    topic = shared(conversation, "transactional-times", message_timestamp_type="LogAppendTime")
    conversation.names.hide_timestamps = True
    producer = Transactional(conversation)
    producer.begin(topic, 2)
    producer.finish(committed=True)
    read_committed(conversation, topic, 0)


@case("Produce", [11])
@pytest.mark.parametrize("committed", [True, False])
def test_compacted_topic(conversation: Conversation, version: int, committed: bool) -> None:
    topic = shared(conversation, "transactional-compacted", cleanup_policy="compact")
    producer = Transactional(conversation)
    producer.begin(topic, 2)
    read_committed(conversation, topic, 0)
    producer.finish(committed=committed)
    data = batch(records(1, prefix="later"))
    produce(conversation, version, topic, data)
    read_committed(conversation, topic, 0)
    read_back(conversation, topic)


def unnoted_producer(conversation: Conversation) -> tuple[int, int]:
    known = init_producer_id(conversation)
    conversation.answers.pop()
    return known


@case("Produce", [11])
def test_ended_in_many_partitions_at_once(conversation: Conversation, version: int) -> None:
    topic = one_segment(conversation, "transactional-wide", partitions=20)
    conversation.start_here(topic)
    producer = Transactional(conversation)
    producer.begin(topic, 1, *range(20))
    producer.finish(committed=True)
    for partition in range(20):
        read_committed(conversation, topic, 0, partition)
