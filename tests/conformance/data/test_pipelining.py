"""Requests that are sent before earlier ones of their connection are answered: each is handled after the previous ones.

Kafka reads a connection's next request when the previous one is answered. So the information in a response is never
older than in an earlier response.
"""

from __future__ import annotations

import time
from typing import Any

from tests.conformance.conversation import Conversation, case
from tests.conformance.groups.test_groups import new_group
from tests.conformance.records import batch, records
from tests.conformance.requests import MAX_BYTES, fetch_fields, fetch_partition, produce_fields

ONCE = [0]
FETCH_FIELDS = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "topics": []}
PARKED_S = 0.3
WAIT_MS = 10_000
LATEST = -1


@case("Metadata", ONCE)
def test_answers_come_in_order(conversation: Conversation, version: int) -> None:
    """A Produce with acks=0 in between has no response."""
    topic = conversation.topic("pipeline")
    conversation.start_here(topic)
    data = batch(records(1))
    asked = []
    for number in range(20):
        api, at, fields = MIXED[number % len(MIXED)]
        if api == "Produce":
            fields = produce_fields(at, {topic: {0: data}}, acks=0 if number % 2 else -1)
        correlation_id = conversation.client.send(api, at, **fields)
        if fields.get("acks") != 0:
            asked.append((api, at, correlation_id))
    for api, at, correlation_id in asked:
        conversation.receive(api, at, correlation_id)


MIXED: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("Metadata", 4, {"topics": [], "allow_auto_topic_creation": False}),
    ("Produce", 7, {}),
    ("Fetch", 2, FETCH_FIELDS),
    ("Metadata", 1, {"topics": []}),
    ("Produce", 3, {}),
)


def park_a_fetch(conversation: Conversation, topic: str) -> int:
    """Send a fetch that waits at the topic's end. Returns its correlation id."""
    part = fetch_partition(11, 0, conversation.names.start_offset, MAX_BYTES)
    fields = fetch_fields(11, [{"topic": topic, "partitions": [part]}], max_wait_ms=WAIT_MS, min_bytes=1)
    return conversation.client.send("Fetch", 11, **fields)


@case("Metadata", ONCE)
def test_ends_behind_a_waiting_fetch_are_those_of_its_answer(conversation: Conversation, version: int) -> None:
    """If the log's end is lower than the last record that librdkafka got, it assumes truncation, and drops records."""
    topic = conversation.topic("pipelined-ends")
    conversation.start_here(topic)
    waiting = park_a_fetch(conversation, topic)
    asked = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": LATEST}]}]
    listing = conversation.client.send("ListOffsets", 1, replica_id=-1, topics=asked)
    epochs = [{"topic": topic, "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}]
    validation = conversation.client.send("OffsetForLeaderEpoch", 3, replica_id=-2, topics=epochs)
    time.sleep(PARKED_S)
    written = conversation.connect().call("Produce", 7, **produce_fields(7, {topic: {0: batch(records(3))}}))
    assert written["responses"][0]["partition_responses"][0]["error_code"] == 0
    conversation.receive("Fetch", 11, waiting)
    conversation.receive("ListOffsets", 1, listing)
    conversation.receive("OffsetForLeaderEpoch", 3, validation)


@case("Metadata", ONCE)
def test_an_end_behind_a_produce_counts_it(conversation: Conversation, version: int) -> None:
    topic = conversation.topic("pipelined-writes")
    conversation.start_here(topic)
    asked = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": LATEST}]}]
    for acks in (1, 0, -1, 0):
        fields = produce_fields(7, {topic: {0: batch(records(2))}}, acks=acks)
        produced = conversation.client.send("Produce", 7, **fields)
        listing = conversation.client.send("ListOffsets", 1, replica_id=-1, topics=asked)
        if acks != 0:
            conversation.receive("Produce", 7, produced)
        conversation.receive("ListOffsets", 1, listing)


@case("Metadata", ONCE)
def test_what_is_committed_behind_a_commit_is_that(conversation: Conversation, version: int) -> None:
    topic, group = conversation.topic("pipelined-commits"), new_group(conversation)
    for offset in range(5):
        part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        topics: list[dict[str, Any]] = [{"name": topic, "partitions": [part]}]
        committed = conversation.client.send("OffsetCommit", 2, **COMMIT, group_id=group, topics=topics)
        named = [{"name": topic, "partition_indexes": [0]}]
        fetched = conversation.client.send("OffsetFetch", 1, group_id=group, topics=named)
        conversation.receive("OffsetCommit", 2, committed)
        conversation.receive("OffsetFetch", 1, fetched)


COMMIT = {"generation_id_or_member_epoch": -1, "member_id": "", "retention_time_ms": -1}
