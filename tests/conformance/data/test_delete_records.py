"""DeleteRecords (key 21), v0 to v2, and the responses of every other API about the log afterwards."""

from __future__ import annotations

import pytest

from tests.conformance.conversation import Conversation, case
from tests.conformance.data.test_list_offsets import EARLIEST, EARLIEST_LOCAL, LATEST, MAX_TIMESTAMP, ask, partition
from tests.conformance.fetching import END, filled
from tests.conformance.records import T0_MS, batch, records
from tests.conformance.requests import fetch_fields, fetch_partition, produce_fields

HIGH_WATERMARK = -1
INSIDE_A_BATCH = 7
"""Batches have five records each: the second one begins at 5."""


def delete(conversation: Conversation, version: int, *wanted: tuple[str, list[tuple[int, int]]]) -> None:
    topics = [
        {"name": name, "partitions": [{"partition_index": index, "offset": offset} for index, offset in parts]}
        for name, parts in wanted
    ]
    conversation.call("DeleteRecords", version, topics=topics, timeout_ms=10_000)


def look(conversation: Conversation, topic: str, offsets: tuple[int, ...], versions: tuple[int, ...] = (12,)) -> None:
    """Compare both ends of the log, searches by time, and fetches at these offsets."""
    for timestamp in (EARLIEST, LATEST, EARLIEST_LOCAL, MAX_TIMESTAMP, 0, T0_MS, T0_MS + 1, T0_MS + 10**6):
        ask(conversation, 9, topic, [partition(9, 0, timestamp)])
    for timestamp in (EARLIEST, LATEST):
        ask(conversation, 0, topic, [partition(0, 0, timestamp, max_offsets=5)])
    for version in versions:
        for offset in offsets:
            asked = [{"topic": topic, "partitions": [fetch_partition(version, 0, offset)]}]
            conversation.call("Fetch", version, **fetch_fields(version, asked))


@case("DeleteRecords")
@pytest.mark.parametrize("before", [0, 5, INSIDE_A_BATCH, END - 1, END, HIGH_WATERMARK])
def test_delete_before(conversation: Conversation, version: int, before: int) -> None:
    topic = filled(conversation, name=f"deleted-{before}-{version}")
    delete(conversation, version, (topic, [(0, before)]))
    start = END if before == HIGH_WATERMARK else before
    look(conversation, topic, (0, start - 1, start, END, END + 1), (4, 12))


@case("DeleteRecords")
def test_start_never_goes_back(conversation: Conversation, version: int) -> None:
    topic = filled(conversation, name=f"deleted-again-{version}")
    for before in (INSIDE_A_BATCH, 3, 0, INSIDE_A_BATCH, 12):
        delete(conversation, version, (topic, [(0, before)]))
        ask(conversation, 5, topic, [partition(5, 0, EARLIEST)])


@case("DeleteRecords")
@pytest.mark.parametrize("before", [END + 1, 2**63 - 1, -2, -(2**63)])
def test_out_of_range(conversation: Conversation, version: int, before: int) -> None:
    topic = filled(conversation)
    delete(conversation, version, (topic, [(0, before), (1, before)]))
    ask(conversation, 5, topic, [partition(5, 0, EARLIEST)])


@case("DeleteRecords")
def test_offsets_continue_after_deletion(conversation: Conversation, version: int) -> None:
    topic = filled(conversation, name=f"deleted-on-{version}")
    delete(conversation, version, (topic, [(0, HIGH_WATERMARK)]))
    conversation.call("Produce", 9, **produce_fields(9, {topic: {0: batch(records(3))}}))
    look(conversation, topic, (END - 1, END, END + 2))
    delete(conversation, version, (topic, [(0, END + 1)]))
    look(conversation, topic, (END, END + 1))


@case("DeleteRecords")
@pytest.mark.parametrize("before", [0, 1, HIGH_WATERMARK])
def test_empty_partition(conversation: Conversation, version: int, before: int) -> None:
    topic = filled(conversation)
    delete(conversation, version, (topic, [(1, before)]))
    ask(conversation, 5, topic, [partition(5, 1, EARLIEST)])


@case("DeleteRecords")
@pytest.mark.parametrize("name", ["no-such-topic", "", ".", "a b", "__consumer_offsets"])
def test_unknown_topic(conversation: Conversation, version: int, name: str) -> None:
    full = conversation.names.prefix + name if name == "no-such-topic" else name
    conversation.when_loaded("FindCoordinator", 0, key="group")  # Kafka creates its internal topic
    delete(conversation, version, (full, [(0, 0)]))


@case("DeleteRecords")
def test_unknown_partition(conversation: Conversation, version: int) -> None:
    topic = filled(conversation)
    delete(conversation, version, (topic, [(2, 0), (-1, 0), (2**31 - 1, 0), (0, 0)]))


@case("DeleteRecords")
@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_compacted_topic(conversation: Conversation, version: int, policy: str) -> None:
    """Records of a topic that is compacted only may not be deleted."""
    topic = conversation.topic(f"deleted-{policy.replace(',', '-')}", configs={"cleanup.policy": policy})
    delete(conversation, version, (topic, [(0, 0)]))


@case("DeleteRecords")
def test_named_twice(conversation: Conversation, version: int) -> None:
    topic = filled(conversation, name=f"deleted-twice-{version}")
    other = filled(conversation)
    delete(conversation, version, (topic, [(0, 3), (0, 8)]), (other, [(0, 0)]), (topic, [(1, 0)]))
    ask(conversation, 5, topic, [partition(5, 0, EARLIEST)])


@case("DeleteRecords")
def test_nothing(conversation: Conversation, version: int) -> None:
    delete(conversation, version)
    delete(conversation, version, (filled(conversation), []))


@case("DeleteRecords")
def test_unknown_partition_of_an_internal_topic(conversation: Conversation, version: int) -> None:
    conversation.when_loaded("FindCoordinator", 0, key="group")
    delete(conversation, version, ("__consumer_offsets", [(0, 0), (-1, 0), (1_000, 0)]))
