"""Versions of APIs that Kafka 3.9 does not have, with the responses of Apache Kafka 4.2.0.

With KAFKA_4=host:port the test runs on a Kafka instead of the gateway, to prove the expectations.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.conformance.records import Record, batch, records
from tests.conformance.requests import fetch_fields, fetch_partition
from tests.integration.native import wait_for
from tests.support.names import unique_topic
from tests.support.raw_client import RawClient

NONE, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT = 0, 3, 39, 85
CORRUPT_MESSAGE, INVALID_RECORD, UNKNOWN_TOPIC_ID = 2, 87, 100
NO_UUID = None  # kafka-python's value for sixteen zero bytes


class Topic(NamedTuple):
    client: RawClient
    name: str
    topic_id: uuid.UUID
    node_id: int

    def produce(self, *asked: tuple[uuid.UUID | None, dict[int, bytes]], acks: int = -1) -> dict[Any, dict[int, Any]]:
        """{topic id: {partition: (error, base offset)}}."""
        data = [
            {"topic_id": topic_id, "partition_data": [{"index": at, "records": each} for at, each in parts.items()]}
            for topic_id, parts in asked
        ]
        fields = {"transactional_id": None, "acks": acks, "timeout_ms": 10_000, "topic_data": data}
        answer = self.client.call("Produce", 13, **fields)
        return {
            topic["topic_id"]: {
                row["index"]: (row["error_code"], row["base_offset"]) for row in topic["partition_responses"]
            }
            for topic in answer["responses"]
        }


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> Iterator[Topic]:
    bootstrap = os.environ.get("KAFKA_4") or request.getfixturevalue("gateway").bootstrap
    client, name = RawClient(bootstrap), unique_topic("newer")
    wanted = {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    (made,) = client.call("CreateTopics", 7, topics=[wanted], timeout_ms=10_000, validate_only=False)["topics"]
    assert made["error_code"] == NONE
    metadata: dict[str, Any] = {}

    def is_led() -> bool:
        fields = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
        metadata.update(client.call("Metadata", 12, topics=[{"topic_id": NO_UUID, "name": name}], **fields))
        wanted = [{"partition_index": number, "timestamp": -1} for number in range(2)]
        topics = [{"name": name, "partitions": wanted}]
        (found,) = client.call("ListOffsets", 6, replica_id=-1, isolation_level=0, topics=topics)["topics"]
        return not any(row["error_code"] for row in found["partitions"])

    wait_for(is_led, "the topic has leaders")
    yield Topic(client, name, made["topic_id"], metadata["brokers"][0]["node_id"])
    client.close()


def data() -> bytes:
    return bytes(batch(records(2)))


def test_topics_are_written_to_by_their_ids(topic: Topic) -> None:
    mine = topic.topic_id
    assert topic.produce((mine, {0: data(), 1: data()})) == {mine: {0: (NONE, 0), 1: (NONE, 0)}}
    assert topic.produce((mine, {0: data()})) == {mine: {0: (NONE, 2)}}
    assert topic.produce((mine, {7: data()})) == {mine: {7: (UNKNOWN_TOPIC_OR_PARTITION, -1)}}
    assert topic.produce() == {}


def test_ids_of_no_topic(topic: Topic) -> None:
    unknown, other = uuid.uuid4(), uuid.uuid4()
    failed = (UNKNOWN_TOPIC_ID, -1)
    assert topic.produce((unknown, {0: data(), 1: data()}), (topic.topic_id, {1: data()}), (other, {3: data()})) == {
        unknown: {0: failed, 1: failed}, topic.topic_id: {1: (NONE, 0)}, other: {3: failed},
    }  # fmt: skip
    assert topic.produce((NO_UUID, {0: data()})) == {NO_UUID: {0: failed}}
    assert topic.produce((unknown, {0: data()}), acks=7) == {unknown: {0: failed}}


def test_records_that_are_none(topic: Topic) -> None:
    assert topic.produce((topic.topic_id, {0: b"abc"})) == {topic.topic_id: {0: (INVALID_RECORD, -1)}}
    broken = data()[:-1] + b"?"
    assert topic.produce((topic.topic_id, {0: broken})) == {topic.topic_id: {0: (CORRUPT_MESSAGE, -1)}}


def test_idempotent_batches_by_topic_id(topic: Topic) -> None:
    given = topic.client.call("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=1000)

    def sequenced(sequence: int) -> bytes:
        # Kafka removes producers whose records are old.
        content = [Record(b"x", timestamp_ms=int(time.time() * 1000))] * 2
        return bytes(batch(content, producer=(given["producer_id"], 0, sequence)))

    for sequence, expected in ((0, (NONE, 0)), (2, (NONE, 2)), (2, (NONE, 2)), (9, (45, -1)), (4, (NONE, 4))):
        assert topic.produce((topic.topic_id, {0: sequenced(sequence)})) == {topic.topic_id: {0: expected}}


def test_a_topic_that_was_deleted_has_no_id(topic: Topic) -> None:
    topic.produce((topic.topic_id, {0: data()}))
    fields = {"topics": [{"name": topic.name, "topic_id": NO_UUID}], "timeout_ms": 10_000}
    (row,) = topic.client.call("DeleteTopics", 6, **fields)["responses"]
    assert row["error_code"] == NONE
    wait_for(
        lambda: topic.produce((topic.topic_id, {0: data()})) == {topic.topic_id: {0: (UNKNOWN_TOPIC_ID, -1)}},
        "the id is unknown",
    )


def test_the_newest_fetch(topic: Topic) -> None:
    topic.produce((topic.topic_id, {0: data()}))
    asked = [{"topic_id": topic.topic_id, "partitions": [fetch_partition(18, 0, 0)]}]
    answer = topic.client.call("Fetch", 18, **fetch_fields(18, asked, max_wait_ms=5_000, min_bytes=1))
    (part,) = answer["responses"][0]["partitions"]
    assert (answer["error_code"], part["error_code"], part["high_watermark"]) == (NONE, NONE, 2)
    assert bytes(part["records"])[16:] == data()[16:]


@pytest.mark.parametrize("may_change", [True, False])
def test_reassignments(topic: Topic, may_change: bool) -> None:
    node_id = topic.node_id
    expected: dict[tuple[int, ...] | None, int] = {(node_id,): NONE, None: NO_REASSIGNMENT}
    expected |= dict.fromkeys([(), (77,), (node_id, 77)], INVALID_REPLICA_ASSIGNMENT)
    for replicas, code in expected.items():
        wanted = [{"partition_index": at, "replicas": None if replicas is None else list(replicas)} for at in (0, 7)]
        answer = topic.client.call(
            "AlterPartitionReassignments", 1, timeout_ms=10_000, allow_replication_factor_change=may_change,
            topics=[{"name": topic.name, "partitions": wanted}, {"name": "none", "partitions": wanted[:1]}],
        )  # fmt: skip
        assert (answer["error_code"], answer["allow_replication_factor_change"]) == (NONE, may_change)
        codes = {each["name"]: [row["error_code"] for row in each["partitions"]] for each in answer["responses"]}
        assert codes == {topic.name: [code, UNKNOWN_TOPIC_OR_PARTITION], "none": [UNKNOWN_TOPIC_OR_PARTITION]}
