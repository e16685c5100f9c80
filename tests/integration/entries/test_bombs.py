"""Small requests that are much work. Other clients notice nothing: the event loop never works long without a pause."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http import HTTPStatus
from typing import Any, NamedTuple

import pytest
import zstandard

from deploy.local.standalone import PulsarStandalone
from protocol.kafka.errors import ErrorCode
from protocol.kafka.records import Record, encode_batch
from tests.conformance.records import GZIP, T0_MS, ZSTD, batch
from tests.conformance.requests import fetch_fields, fetch_partition, produce_fields
from tests.fuzz.witness import Witness
from tests.integration.admin_proxy import AdminProxy
from tests.integration.confluent import TIMEOUT_S, create_topic, watermarks
from tests.integration.native import wait_for
from tests.integration.servers import gateway_on, long_stalls, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import RawClient, connected, request_header

MIB = 1024 * 1024
RECORDS = 400_000
BLOWN_UP_BYTES = 16 * MIB
REQUEST_BYTES = 4 * MIB - 1024
"""Larger requests of these APIs are refused."""
METADATA, LIST_OFFSETS = 3, 2
NAME_BYTES = 7
EMPTY_RECORD_BYTES = 7
ANSWER_S = 4 * TIMEOUT_S
"""Some answers take 10 s of CPU, which on a busy machine take minutes."""
PARTITIONS, COMMITTED_AT_ONCE = 100_000, 50_000
WIDE, GROUP = "wide", "very-many-offsets"
METADATA_OF_COMMIT = "m" * 20
PRODUCER: dict[str, Any] = {"producer_id": 2**40 + 7, "producer_epoch": 0, "base_sequence": 0}
READABLE = {"entry.format": "pulsar"}, {"cleanup.policy": "compact"}
"""Where the gateway has to read the records."""


class Bomb(NamedTuple):
    data: bytes
    records: int


@cache
def bomb(kind: str) -> Bomb:
    if kind == "tiny records":
        tiny = (Record(delta, T0_MS + delta, b"k", b"") for delta in range(RECORDS))
        return Bomb(bytes(encode_batch(tiny, compression=GZIP, **PRODUCER)), RECORDS)
    zeros = [Record(0, T0_MS, b"k", bytes(BLOWN_UP_BYTES))]
    return Bomb(bytes(encode_batch(zeros, compression=ZSTD, **PRODUCER)), 1)


def million() -> bytes:
    """A million records without key and value in a small batch. They all say that they are the first one."""
    body = zstandard.compress(bytes(MIB * EMPTY_RECORD_BYTES))
    return batch([], ZSTD, body=body, count=MIB, last_offset_delta=MIB - 1, max_timestamp_ms=T0_MS)


class Exaggerating(AdminProxy):
    """Says that the topic `wide` has very many partitions. Pulsar would take minutes to create them."""

    def forward(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        status, answered, content = super().forward(method, path, body, headers)
        if method == "GET" and f"/{WIDE}/partitions" in path and status == HTTPStatus.OK:
            content = json.dumps(json.loads(content) | {"partitions": PARTITIONS}).encode()
        return status, answered, content


@pytest.fixture(scope="module")
def bombed(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with Exaggerating(pulsar.admin_url).running() as proxy:
        sections: dict[str, dict[str, Any]] = {
            "pulsar": {"namespace": unique_topic("bombed"), "admin_url": proxy.url},
            "kafka": {"auto_create_topics": False},
            "groups": {"mirror": False},
        }
        with running(gateway_on(pulsar, tmp_path_factory.mktemp("bombed"), **sections)) as server:
            yield server
            assert long_stalls(server) == [], "also while it was started"


@contextmanager
def undisturbed(gateway: GatewayProcess) -> Iterator[RawClient]:
    """Another client must not notice what this one does."""
    known = len(long_stalls(gateway))
    with Witness(gateway.bootstrap) as witness:
        witness.await_reading()
        with connected(gateway.bootstrap, timeout_s=ANSWER_S) as client:
            yield client
    witness.check()
    assert long_stalls(gateway)[known:] == []


@pytest.fixture
def client(bombed: GatewayProcess) -> Iterator[RawClient]:
    with undisturbed(bombed) as client:
        yield client


def produce(client: RawClient, topic: str, data: bytes) -> tuple[int, int]:
    """Error code and offset. The batch is sent again if Pulsar needs longer than this short timeout."""
    deadline = time.monotonic() + 2 * TIMEOUT_S
    while True:
        answer = client.call("Produce", 9, **produce_fields(9, {topic: {0: data}}, timeout_ms=1_000))
        [row] = answer["responses"][0]["partition_responses"]
        if row["error_code"] != ErrorCode.REQUEST_TIMED_OUT or time.monotonic() > deadline:
            return row["error_code"], row["base_offset"]


def offset_at(client: RawClient, topic: str, timestamp: int) -> int:
    asked = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
    [found] = client.call("ListOffsets", 3, replica_id=-1, isolation_level=0, topics=asked)["topics"]
    [row] = found["partitions"]
    assert row["error_code"] == ErrorCode.NONE
    return int(row["offset"])


def fetch(client: RawClient, version: int, topic: str) -> dict[str, Any]:
    parts = [fetch_partition(version, 0, 0, max_bytes=2 * BLOWN_UP_BYTES)]
    fields = fetch_fields(version, [{"topic": topic, "partitions": parts}], max_bytes=2 * BLOWN_UP_BYTES)
    [row] = client.call("Fetch", version, **fields)["responses"][0]["partitions"]
    return dict(row)


@pytest.mark.parametrize("config", READABLE, ids=str)
@pytest.mark.parametrize("kind", ["tiny records", "a megabyte in a hundred bytes"])
def test_a_batch(bombed: GatewayProcess, client: RawClient, kind: str, config: dict[str, str]) -> None:
    """It is written once, although its records may need validation for longer than the client's timeout."""
    topic = unique_topic("bomb")
    create_topic(bombed.bootstrap, topic, config={**config, "max.message.bytes": "20000000"})
    data, count = bomb(kind)
    assert produce(client, topic, data) == (ErrorCode.NONE, 0)
    assert watermarks(bombed.bootstrap, topic) == (0, count)
    assert offset_at(client, topic, T0_MS + count - 1) == count - 1
    assert fetch(client, 12, topic)["records"]
    assert fetch(client, 3, topic)["records"]


@pytest.mark.parametrize("config", READABLE, ids=str)
def test_a_million_records(bombed: GatewayProcess, client: RawClient, config: dict[str, str]) -> None:
    topic = unique_topic("million")
    create_topic(bombed.bootstrap, topic, config=config)
    assert produce(client, topic, million()) == (ErrorCode.INVALID_RECORD, -1)


def names() -> list[bytes]:
    count = REQUEST_BYTES // (2 + NAME_BYTES)
    return [b"\0\7" + b"%07d" % number for number in range(count)]


def test_metadata_of_unknown_topics(client: RawClient) -> None:
    """v1: without automatic creation, which is a setting of the gateway there."""
    asked = names()
    header = request_header(METADATA, 1, 1, None, flexible=False) + struct.pack(">i", len(asked))
    client.send_frame(header + b"".join(asked))
    assert client.read_frame().count(struct.pack(">hh", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NAME_BYTES)) == len(asked)


def test_offsets_of_unknown_topics(client: RawClient) -> None:
    row = struct.pack(">iiq", 1, 0, T0_MS)
    asked = names()[: REQUEST_BYTES // (2 + NAME_BYTES + len(row))]
    header = request_header(LIST_OFFSETS, 1, 1, None, flexible=False) + struct.pack(">ii", -1, len(asked))
    client.send_frame(header + b"".join(name + row for name in asked))
    unknown = struct.pack(">iihqq", 1, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert client.read_frame().count(unknown) == len(asked)


def commit(client: RawClient, group: str, topic: str, partitions: range) -> set[int]:
    """The error codes."""
    rows = [{"partition_index": n, "committed_offset": n, "committed_metadata": METADATA_OF_COMMIT} for n in partitions]
    answer = client.call(
        "OffsetCommit", 2, group_id=group, generation_id_or_member_epoch=-1, member_id="", retention_time_ms=-1,
        topics=[{"name": topic, "partitions": rows}],
    )  # fmt: skip
    return {row["error_code"] for row in answer["topics"][0]["partitions"]}


def committed(client: RawClient, group: str) -> list[int]:
    def ask() -> dict[str, Any]:
        return client.call("OffsetFetch", 7, group_id=group, topics=None, require_stable=False)

    found = wait_for(lambda: (answer := ask())["error_code"] == ErrorCode.NONE and answer, "the coordinator is ready")
    return sorted(row["committed_offset"] for topic in found["topics"] for row in topic["partitions"])


def delete(client: RawClient, group: str, topic: str) -> set[int]:
    """The error codes."""
    rows = [{"partition_index": number} for number in range(PARTITIONS)]
    answer = client.call("OffsetDelete", 0, group_id=group, topics=[{"name": topic, "partitions": rows}])
    return {row["error_code"] for row in answer["topics"][0]["partitions"]}


def test_very_many_offsets(bombed: GatewayProcess, client: RawClient) -> None:
    create_topic(bombed.bootstrap, WIDE)
    for start in range(0, PARTITIONS, COMMITTED_AT_ONCE):
        assert commit(client, GROUP, WIDE, range(start, start + COMMITTED_AT_ONCE)) == {ErrorCode.NONE}
    assert committed(client, GROUP) == [*range(PARTITIONS)]


def test_very_many_offsets_are_loaded(bombed: GatewayProcess) -> None:
    """Those of the test before."""
    bombed.stop()
    bombed.start()
    bombed.wait_ready()
    with undisturbed(bombed) as client:
        assert committed(client, GROUP) == [*range(PARTITIONS)]
        assert delete(client, GROUP, WIDE) == {ErrorCode.NONE}
        assert committed(client, GROUP) == []
