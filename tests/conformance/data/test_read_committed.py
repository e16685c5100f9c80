"""read_committed (Fetch, key 1; ListOffsets, key 2): the last stable offset, aborted transactions, markers for old
versions, and the rest after DeleteRecords (21)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance import fetching
from tests.conformance.conversation import Conversation, case
from tests.conformance.data import test_fetch
from tests.conformance.fetching import named
from tests.conformance.records import T0_MS, TRANSACTIONAL, Record, batch
from tests.conformance.requests import MAX_BYTES, fetch_fields, fetch_partition, produce
from tests.conformance.transactional_log import END, LOG, STABLE, filled, without_ids, write_plain
from tests.conformance.transactions import (
    READ_COMMITTED,
    Transactional,
    await_complete,
    one_segment,
    read_committed,
    unnoted,
)

READ_UNCOMMITTED = 0
WITH_ISOLATION = range(4, 18)
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
LONG_WAIT_MS = 30_000


def fetch(
    conversation: Conversation, version: int, offset: int, isolation: int, *, limit: int = MAX_BYTES, **more: Any
) -> None:
    filled(conversation)
    part = fetch_partition(version, 0, offset, limit)
    asked = [named(conversation, version, LOG, [part])]
    conversation.call("Fetch", version, **fetch_fields(version, asked, isolation_level=isolation, **more))
    without_ids(conversation)


@case("Fetch", WITH_ISOLATION)
@pytest.mark.parametrize("isolation", [READ_UNCOMMITTED, READ_COMMITTED])
@pytest.mark.parametrize("offset", [0, 3, 5, 7, 9, 10, 11, 14, 15, 16, 18, 19, 2**63 - 1, -(2**63)])
def test_isolation(conversation: Conversation, version: int, offset: int, isolation: int) -> None:
    """Up to the last stable offset, with the aborted transactions of the returned records; beyond the end, out of
    range."""
    fetch(conversation, version, offset, isolation)


@case("Fetch", WITH_ISOLATION)
@pytest.mark.parametrize("offset", [2**63 - 1, -(2**63)])
def test_out_of_range_without_transactions(conversation: Conversation, version: int, offset: int) -> None:
    fetching.filled(conversation)
    test_fetch.read(conversation, version, offset, isolation_level=READ_COMMITTED)


@case("Fetch", WITH_ISOLATION)
@pytest.mark.parametrize("offset", [0, 5, 8, 11])
def test_one_batch_at_a_time(conversation: Conversation, version: int, offset: int) -> None:
    """The limit is smaller than any batch: one is returned."""
    fetch(conversation, version, offset, READ_COMMITTED, limit=1, max_bytes=1)
    part = conversation.answers[-1]["Fetch"]["responses"][0]["partitions"][0]
    last = part["records"]["batches"][-1]["last offset"]
    # Kafka's index is coarse: it also lists transactions that began after the returned records.
    part["aborted_transactions"] = [each for each in part["aborted_transactions"] if each["first_offset"] <= last]


@case("Fetch", WITH_ISOLATION)
@pytest.mark.parametrize("offset", [STABLE, STABLE + 1, END])
def test_waits_for_the_last_stable_offset(conversation: Conversation, version: int, offset: int) -> None:
    fetch(conversation, version, offset, READ_COMMITTED, max_wait_ms=50, min_bytes=1)


@case("Fetch", WITH_ISOLATION)
def test_woken_by_the_end_of_a_transaction(conversation: Conversation, version: int) -> None:
    name = "transactional-wait"
    topic = one_segment(conversation, name)
    conversation.start_here(topic)
    producer = Transactional(conversation)
    producer.begin(topic, 2)
    part = fetch_partition(version, 0, conversation.names.start_offset)
    fields = fetch_fields(
        version,
        [named(conversation, version, name, [part])],
        isolation_level=READ_COMMITTED,
        max_wait_ms=LONG_WAIT_MS,
        min_bytes=1,
    )
    waiting = conversation.connect(timeout_s=LONG_WAIT_MS / 1000)
    correlation_id = waiting.send("Fetch", version, **fields)
    producer.finish(committed=True)
    conversation.receive("Fetch", version, correlation_id, waiting)
    part = conversation.answers[-1]["Fetch"]["responses"][0]["partitions"][0]
    part["records"]["batches"] = part["records"]["batches"][:1]  # whether the marker is included depends on timing
    for moving in ("high_watermark", "last_stable_offset"):
        part.pop(moving)


@case("Fetch", range(4))
@pytest.mark.parametrize("offset", [0, 6, 7, 8, 10, 11, 13, 17])
def test_old_versions_over_markers(conversation: Conversation, version: int, offset: int) -> None:
    """Down-conversion removes markers; a slice with nothing but markers is skipped. Kafka then sends a batch twice."""
    filled(conversation)
    test_fetch.read(conversation, version, offset, name=LOG)
    part = conversation.answers[-1]["Fetch"]["responses"][0]["partitions"][0]
    part["records"] = list(dict.fromkeys(part["records"]))


@case("Fetch", range(4))
def test_old_versions_over_markers_alone(conversation: Conversation, version: int) -> None:
    name = "transactional-markers"
    topic = one_segment(conversation, name, partitions=1)
    conversation.start_here(topic)
    producer = Transactional(conversation)
    for _ in range(5):
        unnoted(conversation, lambda: producer.add(3, {topic: [0]}))
        producer.finish(committed=True)
    write_plain(conversation, topic, 1)
    start = conversation.names.start_offset
    parts = [fetch_partition(version, 0, start, 100)]
    answer = conversation.client.call(
        "Fetch", version, **fetch_fields(version, [{"topic": topic, "partitions": parts}])
    )
    conversation.say(bool(answer["responses"][0]["partitions"][0]["records"]))


@case("Fetch", [11, 12, 17])
def test_isolation_in_a_session(conversation: Conversation, version: int) -> None:
    """KIP-227: a session without new records at first, then a commit, then an abort."""
    name = "transactional-session"
    topic = one_segment(conversation, name)
    conversation.start_here(topic)
    producer = Transactional(conversation)
    start, session, epoch = conversation.names.start_offset, 0, 0

    def ask(offset: int | None) -> None:
        nonlocal session, epoch
        rows = [] if offset is None else [fetch_partition(version, 0, start + offset)]
        topics = [named(conversation, version, name, rows)] if rows else []
        fields = fetch_fields(version, topics, isolation_level=READ_COMMITTED, session=(session, epoch))
        session = conversation.call("Fetch", version, **fields)["session_id"]
        epoch += 1

    producer.begin(topic, 2)
    ask(0)
    ask(None)
    producer.finish(committed=True)
    ask(None)
    ask(3)
    producer.begin(topic, 1)
    producer.finish(committed=False)
    ask(None)


@case("Fetch", [11, 17])
def test_aborted_list_of_many(conversation: Conversation, version: int) -> None:
    name = "transactional-many"
    topic = one_segment(conversation, name)
    conversation.start_here(topic)
    producers = [Transactional(conversation) for _ in range(4)]
    for round_number in range(3):
        for producer in producers:
            producer.begin(topic, 1, prefix=f"r{round_number}-")
        for index in (2, 0, 3, 1):
            producers[index].finish(committed=(index + round_number) % 3 == 0)
    for offset in range(0, 24, 3):
        part = fetch_partition(version, 0, conversation.names.start_offset + offset)
        asked = [named(conversation, version, name, [part])]
        conversation.call("Fetch", version, **fetch_fields(version, asked, isolation_level=READ_COMMITTED))


@case("ListOffsets", range(2, 10))
@pytest.mark.parametrize("isolation", [READ_UNCOMMITTED, READ_COMMITTED])
@pytest.mark.parametrize("timestamp", [LATEST, EARLIEST, MAX_TIMESTAMP, 0, T0_MS, T0_MS + 1, T0_MS + 2, T0_MS + 10**12])
def test_list_offsets(conversation: Conversation, version: int, timestamp: int, isolation: int) -> None:
    topic = filled(conversation)
    row = {"partition_index": 0, "timestamp": timestamp} | ({"current_leader_epoch": -1} if version >= 4 else {})
    fields = {"replica_id": -1, "isolation_level": isolation, "topics": [{"name": topic, "partitions": [row]}]}
    answer = conversation.call("ListOffsets", version, **fields)
    if answer["topics"][0]["partitions"][0]["timestamp"] > T0_MS + 10**10:  # a marker's timestamp, which is of today
        conversation.answers[-1]["ListOffsets"]["topics"][0]["partitions"][0]["timestamp"] = "<now>"


@case("ListOffsets", [2, 5, 9])
def test_no_offset_beyond_the_last_stable_one(conversation: Conversation, version: int) -> None:
    """The search by time, too: a record that may still be aborted is not found."""
    topic = one_segment(conversation, "transactional-times-2")
    conversation.start_here(topic)
    producer = Transactional(conversation)
    later = T0_MS + 10**13 + conversation.names.start_offset
    producer.add(3, {topic: [0]})
    data = batch([Record(b"v", None, later)], attributes=TRANSACTIONAL, producer=(producer.id, producer.epoch, 0))
    produce(conversation, 9, topic, data, transactional_id=producer.transactional_id)
    row = {"partition_index": 0, "timestamp": later} | ({"current_leader_epoch": -1} if version >= 4 else {})
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        fields = {"replica_id": -1, "isolation_level": isolation, "topics": [{"name": topic, "partitions": [row]}]}
        conversation.call("ListOffsets", version, **fields)
        conversation.answers[-1]["ListOffsets"]["topics"][0]["partitions"][0].pop("timestamp")
    producer.finish(committed=True)
    conversation.call("ListOffsets", version, **fields)
    conversation.answers[-1]["ListOffsets"]["topics"][0]["partitions"][0].pop("timestamp")


@case("DeleteRecords")
@pytest.mark.parametrize("before", [2, 4, 6, -1])
def test_delete_records(conversation: Conversation, version: int, before: int) -> None:
    """Before, within and after an open transaction, and an aborted one."""
    name = f"transactional-deleted-{before}-{version}".replace("--", "-last-")
    topic = one_segment(conversation, name, partitions=1)
    aborted, producer = Transactional(conversation), Transactional(conversation)
    aborted.begin(topic, 2)
    aborted.finish(committed=False)
    producer.begin(topic, 2)
    write_plain(conversation, topic, 2)
    row = {"name": topic, "partitions": [{"partition_index": 0, "offset": before}]}
    conversation.call("DeleteRecords", version, topics=[row], timeout_ms=10_000)
    for offset in (0, 2, 3, 4, 6):
        read_committed(conversation, topic, offset)
    producer.finish(committed=True)
    read_committed(conversation, topic, 7 if before in (-1, 6) else 4)
    await_complete(conversation, producer.transactional_id)
