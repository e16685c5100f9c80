"""ListOffsets (key 2), v0 to v9: the ends of the log, and offsets by time."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.conformance.conversation import Conversation, case
from tests.conformance.fetching import END, filled
from tests.conformance.records import LZ4, T0_MS, Record, batch, message_set, records
from tests.conformance.requests import produce_fields

SINCE_V1 = range(1, 10)
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def partition(version: int, index: int, timestamp: int, *, max_offsets: int = 1, epoch: int = -1) -> dict[str, int]:
    fields = {"partition_index": index, "timestamp": timestamp}
    if version == 0:
        fields["max_num_offsets"] = max_offsets
    if version >= 4:
        fields["current_leader_epoch"] = epoch
    return fields


def ask(
    conversation: Conversation, version: int, topic: str, partitions: list[dict[str, int]], isolation: int = 0
) -> dict[str, Any]:
    fields: dict[str, Any] = {"replica_id": -1, "topics": [{"name": topic, "partitions": partitions}]}
    if version >= 2:
        fields["isolation_level"] = isolation
    return conversation.call("ListOffsets", version, **fields)


def out_of_order(conversation: Conversation) -> str:
    """A topic whose timestamps rise and fall: 10, 50, 30 | 20 | 60, 60 (compressed) | 40, after T0."""
    fresh = not conversation.has_topic("list-times")
    topic = conversation.topic("list-times")
    if fresh:
        for times, codec in (((10, 50, 30), 0), ((20,), 0), ((60, 60), LZ4), ((40,), 0)):
            content = [Record(b"v", None, T0_MS + time) for time in times]
            conversation.client.call("Produce", 9, **produce_fields(9, {topic: {0: batch(content, codec)}}))
    return topic


@case("ListOffsets")
@pytest.mark.parametrize("timestamp", [LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, -6, -(2**63)])
def test_special_timestamps(conversation: Conversation, version: int, timestamp: int) -> None:
    ask(conversation, version, filled(conversation), [partition(version, 0, timestamp)])


@case("ListOffsets")
@pytest.mark.parametrize("timestamp", [LATEST, EARLIEST, MAX_TIMESTAMP, 0, T0_MS])
def test_empty_partition(conversation: Conversation, version: int, timestamp: int) -> None:
    ask(conversation, version, filled(conversation), [partition(version, 1, timestamp)])


@case("ListOffsets", SINCE_V1)
@pytest.mark.parametrize("after", [-1000, 0, 10, 11, 20, 31, 50, 51, 55, 60, 61])
def test_by_timestamp(conversation: Conversation, version: int, after: int) -> None:
    """The first record, in offset order, that is not older."""
    ask(conversation, version, out_of_order(conversation), [partition(version, 0, T0_MS + after)])


@case("ListOffsets", [7, 8, 9])
def test_max_timestamp_of_several(conversation: Conversation, version: int) -> None:
    ask(conversation, version, out_of_order(conversation), [partition(version, 0, MAX_TIMESTAMP)])


@case("ListOffsets", SINCE_V1)
@pytest.mark.parametrize("timestamp", [0, 1, 2**63 - 1])
def test_far_timestamps(conversation: Conversation, version: int, timestamp: int) -> None:
    ask(conversation, version, out_of_order(conversation), [partition(version, 0, timestamp)])


@case("ListOffsets", SINCE_V1)
def test_records_without_timestamp(conversation: Conversation, version: int) -> None:
    topic = without_timestamps(conversation)
    for timestamp in (0, T0_MS, LATEST, MAX_TIMESTAMP):
        ask(conversation, version, topic, [partition(version, 0, timestamp)])


@case("ListOffsets", [0])
@pytest.mark.parametrize("max_offsets", [0, 1, 2, 10, -1])
@pytest.mark.parametrize("timestamp", [LATEST, EARLIEST, 2**62, 0])
def test_old_style(conversation: Conversation, version: int, timestamp: int, max_offsets: int) -> None:
    """v0 lists segment starts and the end, newest first."""
    topic = filled(conversation)
    ask(conversation, version, topic, [partition(version, 0, timestamp, max_offsets=max_offsets)])


def without_timestamps(conversation: Conversation) -> str:
    """A topic with records of a producer that knows no timestamps."""
    fresh = not conversation.has_topic("list-none")
    topic = conversation.topic("list-none")
    if fresh:
        fields = produce_fields(0, {topic: {0: message_set(records(3), 0)}})
        conversation.client.call("Produce", 0, **fields)
    return topic


@case("ListOffsets", [0])
@pytest.mark.parametrize("timestamp", [0, T0_MS, T0_MS + 30, 2**62])
def test_old_style_before_a_time(conversation: Conversation, version: int, timestamp: int) -> None:
    """The time at which records were stored counts, not their timestamps."""
    for topic in (without_timestamps(conversation), out_of_order(conversation)):
        ask(conversation, version, topic, [partition(version, 0, timestamp, max_offsets=5)])


@case("ListOffsets", [0])
@pytest.mark.parametrize("max_offsets", [1, 2])
def test_old_style_on_an_empty_partition(conversation: Conversation, version: int, max_offsets: int) -> None:
    topic = filled(conversation)
    for timestamp in (LATEST, EARLIEST, 0, 2**62):
        ask(conversation, version, topic, [partition(version, 1, timestamp, max_offsets=max_offsets)])


@case("ListOffsets", range(2, 10))
@pytest.mark.parametrize("isolation", [1, 2, -1])
def test_isolation(conversation: Conversation, version: int, isolation: int) -> None:
    topic = filled(conversation)
    for timestamp in (LATEST, EARLIEST, T0_MS):
        ask(conversation, version, topic, [partition(version, 0, timestamp)], isolation)


@case("ListOffsets")
@pytest.mark.parametrize("index", [2, -1, 2**31 - 1])
def test_unknown_partition(conversation: Conversation, version: int, index: int) -> None:
    parts = [partition(version, index, LATEST), partition(version, 0, LATEST)]
    ask(conversation, version, filled(conversation), parts)


@case("ListOffsets")
@pytest.mark.parametrize("name", ["no-such-topic", "", ".", "a b"])
def test_unknown_topic(conversation: Conversation, version: int, name: str) -> None:
    full = conversation.names.prefix + name if name == "no-such-topic" else name
    ask(conversation, version, full, [partition(version, 0, LATEST)])


@case("ListOffsets", range(4, 10))
@pytest.mark.parametrize("epoch", [0, 1, 1000, -2])
def test_current_leader_epoch(conversation: Conversation, version: int, epoch: int) -> None:
    topic = filled(conversation)
    for timestamp in (LATEST, T0_MS):
        ask(conversation, version, topic, [partition(version, 0, timestamp, epoch=epoch)])


@case("ListOffsets")
def test_partition_named_twice(conversation: Conversation, version: int) -> None:
    """From v1, both rows are INVALID_REQUEST."""
    parts = [partition(version, 0, LATEST), partition(version, 0, EARLIEST), partition(version, 1, LATEST)]
    ask(conversation, version, filled(conversation), parts)


@case("ListOffsets")
def test_topic_named_twice(conversation: Conversation, version: int) -> None:
    topic = filled(conversation)
    fields = {
        "replica_id": -1,
        "topics": [{"name": topic, "partitions": [partition(version, index, LATEST)]} for index in (0, 1)],
    }
    conversation.call("ListOffsets", version, **fields)


@case("ListOffsets")
def test_nothing_asked(conversation: Conversation, version: int) -> None:
    conversation.call("ListOffsets", version, replica_id=-1, topics=[])
    ask(conversation, version, filled(conversation), [])


@case("ListOffsets", [1, 5, 9])
def test_as_a_debugging_consumer(conversation: Conversation, version: int) -> None:
    topic = filled(conversation)
    asked = [{"name": topic, "partitions": [partition(version, 0, LATEST)]}]
    answer = conversation.call("ListOffsets", version, replica_id=-2, topics=asked)
    conversation.say(answer["topics"][0]["partitions"][0]["offset"] == END)


@case("ListOffsets")
@pytest.mark.parametrize("timestamp", [MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, -6])
def test_special_timestamps_of_unknown_partitions(conversation: Conversation, version: int, timestamp: int) -> None:
    topic = filled(conversation)
    ask(conversation, version, topic, [partition(version, index, timestamp) for index in (7, -1, 8, 8)])
    ask(conversation, version, f"{topic}-none", [partition(version, 0, timestamp, epoch=5)])
    ask(conversation, version, topic, [partition(version, 0, timestamp, max_offsets=-1, epoch=5)])
    ask(conversation, version, topic, [partition(version, 7, timestamp)], isolation=2)


@case("ListOffsets", [7, 9])
@pytest.mark.parametrize("codec", [0, LZ4])
def test_times_of_the_log(conversation: Conversation, version: int, codec: int) -> None:
    """With message.timestamp.type=LogAppendTime all records of a batch have one time, which no client has chosen."""
    name = f"list-appended-{codec}"
    fresh = not conversation.has_topic(name)
    topic = conversation.topic(name, configs={"message.timestamp.type": "LogAppendTime"})
    if fresh:
        for after_ms in (20, 10):
            content = [Record(b"v", None, T0_MS + after_ms) for _ in range(3)]
            conversation.client.call("Produce", 9, **produce_fields(9, {topic: {0: batch(content, codec)}}))
            time.sleep(0.01)  # so that the second one is later

    def listed(timestamp: int) -> dict[str, int]:
        parts = [partition(version, 0, timestamp)]
        answer = conversation.client.call(
            "ListOffsets", version, replica_id=-1, isolation_level=0, topics=[{"name": topic, "partitions": parts}]
        )
        found: dict[str, int] = answer["topics"][0]["partitions"][0]
        return found

    latest, first = listed(MAX_TIMESTAMP), listed(T0_MS)
    conversation.say([latest["offset"], first["offset"], latest["timestamp"] > first["timestamp"]])
    for timestamp in (first["timestamp"], first["timestamp"] + 1, latest["timestamp"], latest["timestamp"] + 1):
        found = listed(timestamp)
        conversation.say([found["offset"], found["timestamp"] - first["timestamp"] > 0, found["leader_epoch"]])
