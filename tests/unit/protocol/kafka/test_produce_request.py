"""The handwritten decoder accepts what the schema accepts, refuses what the schema refuses, and has a limit."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.kafka.codec import MalformedRequest, decode_request
from protocol.kafka.fields import MAX_STRING_BYTES
from protocol.kafka.handwritten.produce_request import MAX_PARTITIONS, decode_produce
from protocol.kafka.messages.records import ProduceRequest
from tests.support.schema_values import encode

VERSIONS = range(14)
TEXT = st.text(st.characters(codec="utf-8"), max_size=150)
TopicData: Any = ProduceRequest.TopicProduceData
PARTITIONS = st.builds(
    TopicData.PartitionProduceData, index=st.integers(-1, 2**31 - 1), records=st.none() | st.binary(max_size=200)
)
IDS = st.none() | st.uuids().filter(lambda each: each.int != 0)
TOPICS = st.builds(TopicData, name=TEXT, topic_id=IDS, partition_data=st.lists(PARTITIONS, max_size=4))
REQUESTS = st.builds(
    ProduceRequest,
    transactional_id=st.none() | TEXT, acks=st.integers(-3, 3), timeout_ms=st.integers(0, 2**31 - 1),
    topic_data=st.lists(TOPICS, max_size=4),
)  # fmt: skip


def body(request: Any, version: int) -> bytearray:
    return bytearray(encode(ProduceRequest, version, asdict(request)))


def plain(request: Any) -> tuple[Any, ...]:
    """What both decoders' results have in common."""
    topics = [
        (
            topic.name,
            topic.topic_id,
            [(row.index, None if row.records is None else bytes(row.records)) for row in topic.partition_data],
        )
        for topic in request.topic_data
    ]
    return request.transactional_id, request.acks, request.timeout_ms, topics


@pytest.mark.parametrize("version", VERSIONS)
@given(request=REQUESTS, prefix=st.binary(max_size=9))
def test_as_the_schema_has_it(version: int, request: Any, prefix: bytes) -> None:
    frame = memoryview(prefix + body(request, version))
    assert plain(decode_produce(ProduceRequest, version, frame, len(prefix))) == plain(
        decode_request(ProduceRequest, version, frame, len(prefix))
    )


@pytest.mark.parametrize("version", VERSIONS)
@given(request=REQUESTS, data=st.data())
def test_damaged_bytes_are_refused_or_taken_as_by_the_schema(version: int, request: Any, data: st.DataObject) -> None:
    damaged = body(request, version)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    frame = memoryview(damaged)[: data.draw(st.integers(0, len(damaged)))]
    try:
        decoded: ProduceRequest | None = decode_produce(ProduceRequest, version, frame, 0)
    except MalformedRequest:
        decoded = None
    if decoded is not None:
        assert plain(decoded) == plain(decode_request(ProduceRequest, version, frame, 0))


def test_records_are_a_view_of_the_frame() -> None:
    request = ProduceRequest(
        transactional_id=None, acks=1, timeout_ms=0,
        topic_data=[TopicData(name="t", partition_data=[TopicData.PartitionProduceData(index=0, records=b"x" * 100)])],
    )  # fmt: skip
    frame = body(request, 9)
    records = decode_produce(ProduceRequest, 9, memoryview(frame), 0).topic_data[0].partition_data[0].records
    assert records is not None
    frame[frame.index(b"x" * 100)] = ord("y")
    assert records[0] == ord("y")


@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize("topics", [1, MAX_PARTITIONS + 1])
def test_rows_are_counted(version: int, topics: int) -> None:
    rows = [TopicData.PartitionProduceData(index=0, records=None)] * (MAX_PARTITIONS // topics)
    request = ProduceRequest(
        transactional_id=None, acks=1, timeout_ms=0,
        topic_data=[TopicData(name="t", partition_data=rows)] * topics,
    )  # fmt: skip
    with pytest.raises(MalformedRequest, match="array of"):
        decode_produce(ProduceRequest, version, memoryview(body(request, version)), 0)


@pytest.mark.parametrize("version", [3, 9])
def test_a_topic_without_a_name_is_refused(version: int) -> None:
    name_and_rows = b"\x00\x01" if version == 9 else b"\xff\xff\0\0\0\0"
    head = b"\x00" if version == 9 else b"\xff\xff"
    count = b"\x02" if version == 9 else b"\0\0\0\1"
    frame = head + b"\0\1" + b"\0\0\0\0" + count + name_and_rows + b"\0\0"
    with pytest.raises(MalformedRequest, match="name"):
        decode_produce(ProduceRequest, version, memoryview(frame), 0)


@pytest.mark.parametrize("field", ["transactional_id", "name"])
def test_strings_are_limited_as_by_the_schema(field: str) -> None:
    for size_bytes in (MAX_STRING_BYTES, MAX_STRING_BYTES + 1):
        names = {"transactional_id": None, "name": "t", field: "x" * size_bytes}
        request = ProduceRequest(
            transactional_id=names["transactional_id"], acks=1, timeout_ms=0,
            topic_data=[TopicData(name=names["name"], partition_data=[])],
        )  # fmt: skip
        frame = memoryview(body(request, 9))
        for decode in (decode_produce, decode_request):
            if size_bytes <= MAX_STRING_BYTES:
                assert plain(decode(ProduceRequest, 9, frame, 0)) == plain(request)
            else:
                with pytest.raises(MalformedRequest, match="had invalid length 32768"):
                    decode(ProduceRequest, 9, frame, 0)
