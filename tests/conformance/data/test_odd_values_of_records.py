"""Odd values in requests of records, and record sets whose length, magic and size do not fit."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tests.conformance.conversation import Conversation, Pair, case
from tests.conformance.fetching import filled, named
from tests.conformance.odd_values import Fields, Odd, check
from tests.conformance.records import batch, records
from tests.conformance.requests import (
    fetch_fields,
    fetch_partition,
    init_producer_id,
    produce_fields,
    read_back,
    shared,
    try_to_write,
)

TOPIC = "odd-records"
NEWEST_FETCH, FETCH_BY_NAME, OLD_FETCH = 17, 12, 3
LENGTHS = (-1, 0, 13, 14, 48, 49, 60, 1_000)
MAGICS = (0, 1, 2, 3, 127)
SIZES = (8, 12, 16, 17, 60)
"""The first bytes of a batch of 61 bytes and more that are sent; all of it is sent, too."""
NOT_ANSWERED = ("*.records = None",)
"""Kafka's handler fails."""
WAITS = ("max_wait_ms = 2147483647", "min_bytes = 2147483647")
"""The server waits, as it should."""


def topic_of(conversation: Conversation) -> str:
    return filled(conversation, name=TOPIC)


def producing(conversation: Conversation) -> Fields:
    topic = shared(conversation, "odd-produce")
    return produce_fields(9, {topic: {0: batch(records(1))}})


def producing_in_order(conversation: Conversation) -> Fields:
    topic, (producer_id, epoch) = shared(conversation, "odd-produce"), init_producer_id(conversation)
    return produce_fields(9, {topic: {0: batch(records(1), producer=(producer_id, epoch, 0))}})


def what_is_written(conversation: Conversation, fields: Fields) -> None:
    read_back(conversation, conversation.names.prefix + "odd-produce")


def fetching(conversation: Conversation, version: int, session: tuple[int, int] = (0, -1)) -> Fields:
    topic_of(conversation)
    asked = named(conversation, version, TOPIC, [fetch_partition(version, 0, 0)])
    return fetch_fields(version, [asked], session=session)


def hide_records(answer: dict[str, Any]) -> None:
    """Of two batches that Kafka converts, the last records may be missing in its answer."""
    for topic in answer["responses"]:
        for part in topic["partitions"]:
            part["records"] = bool(part["records"])


def listing(conversation: Conversation) -> Fields:
    part = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    return {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic_of(conversation), "partitions": [part]}]}


def asking_for_epochs(conversation: Conversation) -> Fields:
    part = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return {"replica_id": -1, "topics": [{"topic": topic_of(conversation), "partitions": [part]}]}


def deleting(conversation: Conversation) -> Fields:
    part = {"partition_index": 0, "offset": 0}
    return {"topics": [{"name": topic_of(conversation), "partitions": [part]}], "timeout_ms": 10_000}


def describing(conversation: Conversation) -> Fields:
    return {"topics": [{"name": topic_of(conversation), "partition_indexes": [0]}]}


COMMITTED = {"isolation_level": 1}
ODD = {
    "Produce": Odd("Produce", 9, producing, (*NOT_ANSWERED, "acks = 0"), what_is_written),
    "Produce-old": Odd("Produce", 3, producing, (*NOT_ANSWERED, "acks = 0"), what_is_written),
    "Produce-in-order": Odd("Produce", 9, producing_in_order, (*NOT_ANSWERED, "acks = 0"), what_is_written),
    "Fetch": Odd("Fetch", FETCH_BY_NAME, lambda c: fetching(c, FETCH_BY_NAME), WAITS),
    "Fetch-committed": Odd("Fetch", FETCH_BY_NAME, lambda c: fetching(c, FETCH_BY_NAME) | COMMITTED, WAITS),
    "Fetch-session": Odd("Fetch", NEWEST_FETCH, lambda c: fetching(c, NEWEST_FETCH, (0, 0)), WAITS),
    "Fetch-old": Odd("Fetch", OLD_FETCH, lambda c: fetching(c, OLD_FETCH), WAITS, tidy=hide_records),
    "ListOffsets": Odd("ListOffsets", 8, listing),
    "ListOffsets-committed": Odd("ListOffsets", 8, lambda c: listing(c) | COMMITTED),
    "OffsetForLeaderEpoch": Odd("OffsetForLeaderEpoch", 4, asking_for_epochs),
    "DeleteRecords": Odd("DeleteRecords", 2, deleting, ("*.offset = -1",)),
    "DescribeProducers": Odd("DescribeProducers", 0, describing),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_values(pair: Pair, request: pytest.FixtureRequest, name: str) -> None:
    check(pair, request, ODD[name])


@case("Produce", [3, 9])
@pytest.mark.parametrize("magic", MAGICS)
def test_lengths_and_sizes_that_do_not_fit(conversation: Conversation, version: int, magic: int) -> None:
    for length in LENGTHS:
        data = bytearray(batch(records(1)))
        struct.pack_into(">iib", data, 8, length, -1, magic)
        for size in (*SIZES, len(data)):
            try_to_write(conversation, version, bytes(data[:size]))
