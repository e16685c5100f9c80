"""Transactions for operators (KIP-664): DescribeProducers (61), DescribeTransactions (65), ListTransactions (66), and
WriteTxnMarkers (27) from a client."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.conversation import Conversation, case
from tests.conformance.records import batch, records
from tests.conformance.requests import init_producer_id, produce_fields
from tests.conformance.transactions import (
    Transactional,
    await_complete,
    describe,
    new_transactional_id,
    one_segment,
    read_committed,
)

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead")
SHORT_TIMEOUT_MS = 4_000
"""Long enough to write a record before it: a busy machine may need half a second."""


def topic_of(conversation: Conversation, name: str = "transaction-admin") -> str:
    topic = one_segment(conversation, name, partitions=2)
    conversation.start_here(topic)
    return topic


def producers(conversation: Conversation, version: int, topic: str, mine: set[int], *partitions: int) -> None:
    """Compare the states of this case's producers: cases share partitions."""
    asked = [{"name": topic, "partition_indexes": list(partitions or (0,))}]
    answer = conversation.call("DescribeProducers", version, topics=asked)
    noted = conversation.answers[-1]["DescribeProducers"]["topics"]
    for topic_noted, found in zip(noted, answer["topics"], strict=True):
        for row_noted, row in zip(topic_noted["partitions"], found["partitions"], strict=True):
            labels = {conversation.names.producer_ids[each] for each in mine}
            row_noted["active_producers"] = [
                each for each in row_noted["active_producers"] if each["producer_id"] in labels
            ]
            conversation.say({"active": mine & {each["producer_id"] for each in row["active_producers"]} == mine})


@case("DescribeProducers")
@pytest.mark.parametrize("committed", [True, False])
def test_producers_of_a_transaction(conversation: Conversation, version: int, committed: bool) -> None:
    topic, producer = topic_of(conversation), Transactional(conversation)
    producer.begin(topic, 3)
    producers(conversation, version, topic, {producer.id})
    producer.finish(committed=committed)
    producers(conversation, version, topic, {producer.id})
    producer.begin(topic, 1)
    producers(conversation, version, topic, {producer.id})


@case("DescribeProducers")
def test_producers_without_transactions(conversation: Conversation, version: int) -> None:
    topic = topic_of(conversation)
    producer_id, epoch = init_producer_id(conversation)
    for sequence in (0, 2):
        data = batch(records(2), producer=(producer_id, epoch, sequence))
        conversation.client.call("Produce", 9, **produce_fields(9, {topic: {0: data}}))
    producers(conversation, version, topic, {producer_id})


@case("DescribeProducers")
def test_producer_with_a_marker_alone(conversation: Conversation, version: int) -> None:
    topic, producer = topic_of(conversation), Transactional(conversation)
    producer.add(3, {topic: [0]})
    producer.finish(committed=True)
    producers(conversation, version, topic, {producer.id})


@case("DescribeProducers")
def test_producers_of_unknown_partitions(conversation: Conversation, version: int) -> None:
    topic = topic_of(conversation)
    for name, indexes in ((topic, [7, -1]), ("no-such-topic", [0]), ("", [0]), (topic, [])):
        conversation.call("DescribeProducers", version, topics=[{"name": name, "partition_indexes": indexes}])
    conversation.call("DescribeProducers", version, topics=[])


@case("DescribeTransactions")
def test_life_of_a_transaction(conversation: Conversation, version: int) -> None:
    topic, producer = topic_of(conversation), Transactional(conversation)
    describe(conversation, producer.transactional_id)
    producer.add(3, {topic: [0, 1]})
    describe(conversation, producer.transactional_id)
    producer.finish(committed=True)
    describe(conversation, producer.transactional_id)
    producer.begin(topic)
    producer.finish(committed=False)
    describe(conversation, producer.transactional_id)


@case("DescribeTransactions")
def test_describe_several(conversation: Conversation, version: int) -> None:
    known = Transactional(conversation)
    unknown = new_transactional_id(conversation)
    describe(conversation)
    describe(conversation, unknown)
    describe(conversation, known.transactional_id, unknown)
    describe(conversation, known.transactional_id, known.transactional_id)
    describe(conversation, "")


@case("DescribeTransactions")
def test_timed_out_transaction(conversation: Conversation, version: int) -> None:
    topic, producer = topic_of(conversation), Transactional(conversation, timeout_ms=SHORT_TIMEOUT_MS)
    producer.begin(topic)
    await_complete(conversation, producer.transactional_id)
    describe(conversation, producer.transactional_id)
    producers(conversation, 0, topic, {producer.id})


def listed(conversation: Conversation, version: int, mine: list[Transactional], **fields: Any) -> None:
    """Compare which of this case's transactions are listed."""
    asked: dict[str, Any] = {"state_filters": [], "producer_id_filters": []}
    if version >= 1:
        asked["duration_filter"] = -1
    answer = conversation.call("ListTransactions", version, **(asked | fields))
    conversation.answers[-1]["ListTransactions"].pop("transaction_states")
    found = {each["transactional_id"]: each for each in answer["transaction_states"]}
    for one in mine:
        state = found.get(one.transactional_id)
        conversation.say(state and (state["transaction_state"], state["producer_id"] == one.id))


@case("ListTransactions")
def test_list(conversation: Conversation, version: int) -> None:
    topic = topic_of(conversation)
    empty, ongoing, committed, aborted = mine = [Transactional(conversation) for _ in range(4)]
    ongoing.begin(topic)
    committed.begin(topic)
    committed.finish(committed=True)
    aborted.begin(topic)
    aborted.finish(committed=False)
    listed(conversation, version, mine)
    for state in (*STATES, "Unknown", "", "ongoing"):
        listed(conversation, version, mine, state_filters=[state])
    listed(conversation, version, mine, state_filters=["Ongoing", "Empty", "x"])
    listed(conversation, version, mine, producer_id_filters=[ongoing.id, empty.id])
    listed(conversation, version, mine, producer_id_filters=[-1, 2**62])
    listed(conversation, version, mine, producer_id_filters=[ongoing.id], state_filters=["Empty"])


@case("ListTransactions", [1])
@pytest.mark.parametrize("duration_ms", [0, 1, 10**9, 2**63 - 1, -2])
def test_list_by_duration(conversation: Conversation, version: int, duration_ms: int) -> None:
    topic = topic_of(conversation)
    ongoing, done = mine = [Transactional(conversation) for _ in range(2)]
    ongoing.begin(topic)
    done.begin(topic)
    done.finish(committed=True)
    listed(conversation, version, mine, duration_filter=duration_ms)


def marker(producer: Transactional, topic: str, *, committed: bool, **more: Any) -> dict[str, Any]:
    identity = {"producer_id": producer.id, "producer_epoch": producer.epoch, "coordinator_epoch": 0}
    topics = [{"name": topic, "partition_indexes": [0]}]
    return {**identity, "transaction_result": committed, "topics": topics} | more


@case("WriteTxnMarkers", [1])
def test_marker_of_a_client(conversation: Conversation, version: int) -> None:
    """Accepted where clients need no permissions: kafka-transactions.sh ends hanging transactions with it."""
    topic, producer = topic_of(conversation), Transactional(conversation)
    producer.begin(topic, 2)
    conversation.call("WriteTxnMarkers", version, markers=[marker(producer, topic, committed=True)])
    read_committed(conversation, topic, 0)


@case("WriteTxnMarkers", [1])
def test_marker_for_unknown_partitions(conversation: Conversation, version: int) -> None:
    topic, producer = topic_of(conversation), Transactional(conversation)
    for topics in ([{"name": "no-such-topic", "partition_indexes": [0]}], [{"name": topic, "partition_indexes": [9]}]):
        conversation.call("WriteTxnMarkers", version, markers=[marker(producer, topic, committed=False, topics=topics)])
    conversation.call("WriteTxnMarkers", version, markers=[])
