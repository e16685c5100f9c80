"""AddPartitionsToTxn (24): v0 to v3 of clients, and later versions of brokers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.conversation import Conversation, case
from tests.conformance.transactions import (
    FLEXIBLE,
    FOREIGN_IDENTITIES,
    LONGER_ID,
    OF_BROKERS,
    OF_CLIENTS,
    Transactional,
    adding,
    describe,
    one_segment,
    read_committed,
    shared_topic,
)


@case("AddPartitionsToTxn", OF_CLIENTS)
def test_add(conversation: Conversation, version: int) -> None:
    topic, other = shared_topic(conversation), one_segment(conversation, "transactions-2")
    producer = Transactional(conversation)
    producer.add(version, {topic: [0]})
    producer.add(version, {topic: [0, 1], other: [1, 0]})
    producer.add(version, {topic: [0, 1], other: [1, 0]})
    producer.add(version, {topic: [1, 1], other: []})
    producer.add(version, {})
    describe(conversation, producer.transactional_id)
    producer.end(3, committed=True)


@case("AddPartitionsToTxn", OF_CLIENTS)
@pytest.mark.parametrize(
    "unknown",
    [
        {"no-such-topic": [0]},
        {"": [0]},
        {"a b": [0]},
        {None: [3]},
        {None: [-1]},
        {None: [0, 9]},
        {"__consumer_offsets": [0]},
        {"__transaction_state": [0], "no-such-topic": [0]},
    ],
    ids=str,
)
def test_add_unknown(conversation: Conversation, version: int, unknown: dict[str | None, list[int]]) -> None:
    """Unknown partitions, and those that clients may not write to. The other partitions get OPERATION_NOT_ATTEMPTED.
    None stands for the topic that exists."""
    topic, other = shared_topic(conversation), one_segment(conversation, "transactions-2")
    producer = Transactional(conversation)
    named = {name if name is not None else topic: partitions for name, partitions in unknown.items()}
    producer.add(version, {other: [0, 1], **named})
    describe(conversation, producer.transactional_id)
    producer.add(version, {other: [0]})
    describe(conversation, producer.transactional_id)


@case("AddPartitionsToTxn", OF_CLIENTS)
@pytest.mark.parametrize("foreign", FOREIGN_IDENTITIES, ids=str)
def test_add_of_a_foreign_producer(conversation: Conversation, version: int, foreign: dict[str, Any]) -> None:
    topic = shared_topic(conversation)
    producer = Transactional(conversation)
    producer.add(version, {topic: [0]}, **foreign)
    producer.add(version, {}, **foreign)
    describe(conversation, producer.transactional_id)


@case("AddPartitionsToTxn", OF_CLIENTS)
def test_add_with_an_older_epoch(conversation: Conversation, version: int) -> None:
    topic = shared_topic(conversation)
    producer = Transactional(conversation)
    producer.init(4)
    producer.add(version, {topic: [0]})
    producer.add(version, {topic: [0]}, producer_epoch=1)
    producer.add(version, {topic: [1]})
    describe(conversation, producer.transactional_id)


@case("AddPartitionsToTxn", [FLEXIBLE["AddPartitionsToTxn"]])
def test_add_of_a_long_id(conversation: Conversation, version: int) -> None:
    producer = Transactional(conversation)
    producer.add(version, {shared_topic(conversation): [0]}, transactional_id=LONGER_ID)


@case("AddPartitionsToTxn", [3])
def test_over_a_thousand_times_the_same_partition(conversation: Conversation, version: int) -> None:
    topic = shared_topic(conversation)
    producer = Transactional(conversation)
    producer.add(version, {topic: [0, 1, 2] * 400})
    conversation.say(len(conversation.answers.pop()["AddPartitionsToTxn"]["results_by_topic_v3_and_below"]))
    producer.finish(committed=True)
    read_committed(conversation, topic)


ODD_ROWS: list[list[tuple[str | None, list[int]]]] = [
    [(None, [0, 0, 1])],
    [(None, [0]), (None, [1, 0])],
    [(None, [0, 0]), (None, [7, 7]), ("no-such-topic", [0, 0]), ("no-such-topic", [0])],
    [(None, []), (None, [0])],
    [(None, [])],
    [(None, []), ("no-such-topic", [])],
]
"""Topics and partitions that are named again, and topics without partitions. None stands for the topic that exists."""


@case("AddPartitionsToTxn", OF_CLIENTS)
@pytest.mark.parametrize("rows", [*ODD_ROWS, [("__consumer_offsets", [0, 0]), (None, [0, 0])]], ids=str)
def test_add_odd_rows(conversation: Conversation, version: int, rows: list[tuple[str | None, list[int]]]) -> None:
    topic = shared_topic(conversation)
    producer = Transactional(conversation)
    topics = [{"name": topic if name is None else name, "partitions": partitions} for name, partitions in rows]
    for epoch in (producer.epoch, 9):
        fields = adding(producer.identity(producer_epoch=epoch), {}) | {"v3_and_below_topics": topics}
        conversation.call("AddPartitionsToTxn", version, **fields)


@case("AddPartitionsToTxn", OF_BROKERS)
@pytest.mark.parametrize("rows", ODD_ROWS, ids=str)
@pytest.mark.parametrize("verify_only", [True, False])
def test_add_odd_rows_for_clients(
    conversation: Conversation, version: int, verify_only: bool, rows: list[tuple[str | None, list[int]]]
) -> None:
    topic = shared_topic(conversation)
    producer, other = Transactional(conversation), Transactional(conversation)
    topics = [{"name": topic if name is None else name, "partitions": partitions} for name, partitions in rows]
    more = {"verify_only": verify_only, "topics": topics}
    mine, foreign = producer.identity(), producer.identity(producer_epoch=9)
    for names in ([mine], [mine, other.identity()], [foreign]):
        conversation.call("AddPartitionsToTxn", version, transactions=[identity | more for identity in names])


@case("AddPartitionsToTxn", OF_BROKERS)
def test_add_nothing_for_clients(conversation: Conversation, version: int) -> None:
    """Of a request without transactions, Kafka's handler fails and never answers."""
    producer = Transactional(conversation)
    nothing = producer.identity() | {"verify_only": False, "topics": []}
    conversation.call("AddPartitionsToTxn", version, transactions=[nothing])
