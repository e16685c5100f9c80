"""The hand-written encoding is the schema's, byte for byte, in every version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.kafka.codec import encode_response
from protocol.kafka.handwritten.produce_response import WrittenRow, encode_written, is_written
from protocol.kafka.messages.records import ProduceResponse

OFFSETS = st.integers(-1, 2**63 - 1)
TopicResponse: Any = ProduceResponse.TopicProduceResponse
PARTITIONS = st.builds(
    TopicResponse.PartitionProduceResponse,
    index=st.integers(0, 2**31 - 1), error_code=st.just(0), base_offset=OFFSETS, log_append_time_ms=OFFSETS,
    log_start_offset=OFFSETS, record_errors=st.just([]), error_message=st.none(),
)  # fmt: skip
TOPICS = st.builds(
    TopicResponse,
    name=st.text(st.characters(codec="utf-8"), max_size=200),
    topic_id=st.none() | st.uuids().filter(lambda each: each.int != 0),
    partition_responses=st.lists(PARTITIONS, max_size=10),
)


@pytest.mark.parametrize("version", range(14))
@given(topics=st.lists(TOPICS, max_size=4), throttle_time_ms=st.integers(0, 2**31 - 1))
def test_as_the_schema_has_it(version: int, topics: list[Any], throttle_time_ms: int) -> None:
    response = ProduceResponse(responses=topics, throttle_time_ms=throttle_time_ms)
    expected = b"".join(encode_response(ProduceResponse, version, 77, response))
    written = encode_written(version, 77, topics, throttle_time_ms)
    assert written == expected
    assert is_written(version, memoryview(written)[4:])
    assert not is_written(version, memoryview(written)[4:-1])


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("failed", [0, 1, 2])
def test_an_answer_with_an_error_is_told_from_it(version: int, failed: int) -> None:
    rows = [
        TopicResponse.PartitionProduceResponse(
            index=index, error_code=6 if index == failed else 0, base_offset=5, log_append_time_ms=-1,
            log_start_offset=0, record_errors=[], error_message="no" if index == failed else None,
        )
        for index in range(3)
    ]  # fmt: skip
    for topics in (
        [TopicResponse(name="a", partition_responses=rows)],
        [TopicResponse(name=str(row.index), partition_responses=[row]) for row in rows],
    ):
        response = ProduceResponse(responses=topics, throttle_time_ms=0)
        frame = b"".join(encode_response(ProduceResponse, version, 77, response))
        assert not is_written(version, memoryview(frame)[4:])


@pytest.mark.parametrize("version", range(5, 14))
@given(topic=TOPICS.filter(lambda topic: len(topic.partition_responses) == 1), offsets=st.tuples(OFFSETS, OFFSETS))
def test_rows_for_one_partition(version: int, topic: Any, offsets: tuple[int, int]) -> None:
    """The numbers may be any; an error, another partition and a throttle time make another frame."""
    row, [partition] = WrittenRow(version, topic), topic.partition_responses

    def frame(throttle_time_ms: int = 0, **changes: int) -> bytearray:
        rows = [replace(partition, base_offset=offsets[0], log_append_time_ms=offsets[1], **changes)]
        response = ProduceResponse(
            responses=[replace(topic, partition_responses=rows)], throttle_time_ms=throttle_time_ms
        )
        return bytearray(b"".join(encode_response(ProduceResponse, version, 77, response)))[4:]

    assert bytes(frame()) == row.encode(77, *offsets, partition.log_start_offset)[4:]
    assert row.matches(frame())
    for other in (frame(error_code=6), frame(index=partition.index ^ 1), frame(throttle_time_ms=1), frame()[:-1]):
        assert not row.matches(other)


def test_more_partitions_than_one_byte_counts() -> None:
    rows = [
        TopicResponse.PartitionProduceResponse(
            index=index, error_code=0, base_offset=5, log_append_time_ms=-1, log_start_offset=0, record_errors=[]
        )
        for index in range(20_000)
    ]
    topics = [TopicResponse(name="t", partition_responses=rows)]
    response = ProduceResponse(responses=topics, throttle_time_ms=0)
    assert encode_written(9, 1, topics) == b"".join(encode_response(ProduceResponse, 9, 1, response))
