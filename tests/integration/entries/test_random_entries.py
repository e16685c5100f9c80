"""Random entries of native producers: clients of every version read past them, and all other operations work."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from deploy.local.standalone import PulsarStandalone
from protocol.kafka.offset_span import batch_extents
from tests.integration.confluent import (
    TIMEOUT_S,
    Record,
    assigned,
    create_topic,
    delete_records,
    produce,
    read_all_values,
    take,
    watermarks,
)
from tests.integration.odd_entries import random_entries, write
from tests.integration.servers import events, lone_gateway_on, metric, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import RawClient, connected
from tests.support.records import parse_message_set

SEED = int(os.environ.get("FUZZ_SEED", "1"))
ENTRIES = int(os.environ.get("FUZZ_ENTRIES", "400"))
OLD, NEW = (0, 1, 2, 3), (4, 11, 12, 17)
FIRST_WITH_SESSIONS, FIRST_WITH_TOPIC_IDS = 7, 13
SOME_BYTES, FEW_BYTES = 64 * 1024, 200
PRODUCER_ID = 7_000_000
WAIT_MS = 500


@pytest.fixture(scope="module")
def lone(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with running(lone_gateway_on(pulsar, tmp_path_factory.mktemp("random"))) as gateway:
        yield gateway
        assert events(gateway, "request failed") == []
        assert metric(gateway, "kafka_gateway_unexpected_failures_total") == 0


@pytest.fixture(scope="module")
def topic(pulsar: PulsarStandalone, lone: GatewayProcess) -> str:
    """The first and the last record of the topic are valid."""
    name = unique_topic("random")
    create_topic(lone.bootstrap, name)
    produce(lone.bootstrap, name, [Record(b"first", timestamp_ms=1_000)])
    entries = random_entries(Random(SEED), ENTRIES)
    asyncio.run(write(pulsar, f"{name}-partition-0", entries, f"kafka/{lone.config['pulsar']['namespace']}"))
    produce(lone.bootstrap, name, [Record(b"last", timestamp_ms=2**45)])
    return name


def fetch(client: RawClient, version: int, topic: str, topic_id: Any, offset: int, max_bytes: int) -> bytes:
    """The records field of the partition's response."""
    part = {
        "partition": 0, "fetch_offset": offset, "partition_max_bytes": max_bytes, "log_start_offset": -1,
        "current_leader_epoch": -1, "last_fetched_epoch": -1,
    }  # fmt: skip
    named: dict[str, Any] = {"topic": topic} if version < FIRST_WITH_TOPIC_IDS else {"topic_id": topic_id}
    fields: dict[str, Any] = {
        "replica_id": -1, "max_wait_ms": WAIT_MS, "min_bytes": 1, "topics": [named | {"partitions": [part]}],
        "max_bytes": SOME_BYTES, "isolation_level": 0, "session_epoch": -1, "session_id": 0, "rack_id": "",
    }  # fmt: skip
    answer = client.call("Fetch", version, **fields)
    [row] = answer["responses"][0]["partitions"]
    assert row["error_code"] == 0, f"error {row['error_code']} at {offset}"
    return row["records"] or b""


def behind(version: int, records: bytes, offset: int) -> int:
    """The next offset of a client."""
    if version in OLD:
        return max((message.offset + 1 for message in parse_message_set(records, 1 << 24)), default=offset)
    return max((end for _, _, end in batch_extents(records)), default=offset)


@pytest.mark.parametrize("max_bytes", [SOME_BYTES, FEW_BYTES])
@pytest.mark.parametrize("version", OLD + NEW)
def test_every_client_reads_on(lone: GatewayProcess, topic: str, version: int, max_bytes: int) -> None:
    with connected(lone.bootstrap) as client:
        metadata = client.call("Metadata", 12, topics=[{"topic_id": None, "name": topic}])
        topic_id = metadata["topics"][0]["topic_id"]
        _, end = watermarks(lone.bootstrap, topic)
        offset, deadline = 0, time.monotonic() + 2 * TIMEOUT_S
        while offset < end:
            found = fetch(client, version, topic, topic_id, offset, max_bytes)
            assert time.monotonic() < deadline, f"nothing comes at {offset} of {end}"
            if not found and max_bytes < SOME_BYTES:
                max_bytes *= 2  # as old clients do when a batch is incomplete
            after = behind(version, found, offset)
            assert after > offset or not found
            offset = after


def test_librdkafka_reads_first_and_last(lone: GatewayProcess, topic: str) -> None:
    values = read_all_values(lone.bootstrap, topic)
    assert values[0][1] == b"first"
    assert values[-1][1] == b"last"
    offsets = [offset for offset, _ in values]
    assert offsets == sorted(set(offsets))


def test_searches_by_time_find_something(lone: GatewayProcess, topic: str) -> None:
    low, high = watermarks(lone.bootstrap, topic)
    with assigned(lone.bootstrap, topic) as reader:
        for timestamp in (0, 1_000, 1_001, int(time.time() * 1000), 2**45):
            [found] = reader.offsets_for_times([TopicPartition(topic, 0, timestamp)], TIMEOUT_S)
            assert found.error is None
            assert low <= found.offset < high
            assert timestamp < 2**45 or found.offset <= high - 1


def test_neighbours_and_idempotent_writes_go_on(lone: GatewayProcess, topic: str) -> None:
    neighbour = unique_topic("neighbour")
    create_topic(lone.bootstrap, neighbour)
    with assigned(lone.bootstrap, neighbour) as reader, assigned(lone.bootstrap, topic) as beside:
        for number in range(10):
            beside.poll(0)
            produce(lone.bootstrap, neighbour, [Record(b"%d" % number)], enable_idempotence=True)
            assert [message.value() for message in take(reader, 1)] == [b"%d" % number]


def test_after_a_restart_all_is_as_it_was(lone: GatewayProcess, topic: str) -> None:
    before, bounds = read_all_values(lone.bootstrap, topic), watermarks(lone.bootstrap, topic)
    lone.stop()
    lone.start()
    lone.wait_ready()
    assert watermarks(lone.bootstrap, topic) == bounds
    [offset] = produce(lone.bootstrap, topic, [Record(b"last")], enable_idempotence=True)
    assert offset == bounds[1]
    assert read_all_values(lone.bootstrap, topic) == [*before, (offset, b"last")]


def test_records_are_deleted_up_to_any_offset(lone: GatewayProcess, topic: str) -> None:
    """The last test of this topic."""
    _, high = watermarks(lone.bootstrap, topic)
    for before in (1, high // 3, high // 2, high - 1, high):
        delete_records(lone.bootstrap, topic, before)
        assert watermarks(lone.bootstrap, topic)[0] == before
        with assigned(lone.bootstrap, topic) as reader:
            assert before == high or take(reader, 1)[0].offset() >= before  # type: ignore[operator]
