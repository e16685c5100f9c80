"""Odd values in requests of transactions."""

from __future__ import annotations

import pytest

from tests.conformance.conversation import Conversation, Pair
from tests.conformance.groups.test_groups import new_group
from tests.conformance.odd_values import Fields, Odd, check
from tests.conformance.requests import read_back
from tests.conformance.transactions import Transactional, one_segment

TOPIC, MARKED = "odd-transactions", "odd-markers"
OTHER_GROUPS = ("group_id = *",)
"""Whether the transaction has them depends on the partition of a name."""
OTHER_IDS = tuple(f"transactional_id*= {name}" for name in ("' '", "'no-such'", "xxx..."))
"""Those that earlier changes have made, or not."""
NAMED_TWICE = ("transactions = *",)
"""Only brokers send several transactions; Kafka does not answer if there is none."""
MARKERS = ("markers* = 'twice'", "*.topics = []", "*.partition_indexes = []")
"""Kafka never answers, or leaves out rows. Only brokers send them."""


def topic_of(conversation: Conversation) -> str:
    return one_segment(conversation, TOPIC)


def initialising(conversation: Conversation) -> Fields:
    mine = Transactional(conversation)
    named = {"transactional_id": mine.transactional_id, "transaction_timeout_ms": 60_000}
    return named | {"producer_id": mine.id, "producer_epoch": mine.epoch}


def adding(conversation: Conversation) -> Fields:
    topics = [{"name": topic_of(conversation), "partitions": [0]}]
    mine = Transactional(conversation).identity(verify_only=False, topics=topics)
    return {f"v3_and_below_{name}": value for name, value in mine.items()} | {"transactions": [mine]}


def ending(conversation: Conversation) -> Fields:
    mine = Transactional(conversation)
    mine.add(3, {topic_of(conversation): [0]})
    return mine.identity(committed=True)


def committing(conversation: Conversation) -> Fields:
    mine, group = Transactional(conversation), new_group(conversation)
    mine.add_offsets(3, group)
    row = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}
    topics = [{"name": topic_of(conversation), "partitions": [row]}]
    return mine.identity(group_id=group, generation_id=-1, member_id="", topics=topics)


def marking(conversation: Conversation) -> Fields:
    mine, topic = Transactional(conversation), one_segment(conversation, MARKED)
    conversation.start_here(topic)
    marker = {
        "producer_id": mine.id, "producer_epoch": mine.epoch, "transaction_result": False, "coordinator_epoch": 0,
        "topics": [{"name": topic, "partition_indexes": [0]}],
    }  # fmt: skip
    return {"markers": [marker]}


def what_is_written(conversation: Conversation, fields: Fields) -> None:
    read_back(conversation, conversation.names.prefix + MARKED)


ODD = {
    "InitProducerId": Odd("InitProducerId", 5, initialising, OTHER_IDS),
    "AddPartitionsToTxn": Odd("AddPartitionsToTxn", 3, adding),
    "AddPartitionsToTxn-brokers": Odd("AddPartitionsToTxn", 5, adding, NAMED_TWICE),
    "AddOffsetsToTxn": Odd("AddOffsetsToTxn", 4, lambda c: Transactional(c).identity(group_id=new_group(c))),
    "EndTxn": Odd("EndTxn", 4, ending),
    "TxnOffsetCommit": Odd("TxnOffsetCommit", 4, committing, OTHER_GROUPS),
    "DescribeTransactions": Odd(
        "DescribeTransactions", 0, lambda c: {"transactional_ids": [Transactional(c).transactional_id]}, OTHER_IDS
    ),
    "WriteTxnMarkers": Odd("WriteTxnMarkers", 1, marking, MARKERS, what_is_written),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_values(pair: Pair, request: pytest.FixtureRequest, name: str) -> None:
    check(pair, request, ODD[name])
