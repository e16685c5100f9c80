"""The hand-written encoding is the schema's, byte for byte, in every version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.kafka.codec import encode_response
from protocol.kafka.handwritten.list_offsets_response import FIRST_VERSION, encode_listed
from protocol.kafka.messages.records import ListOffsetsResponse

OFFSETS = st.integers(-1, 2**63 - 1)
_Topic: Any = ListOffsetsResponse.ListOffsetsTopicResponse
PARTITIONS = st.builds(
    _Topic.ListOffsetsPartitionResponse,
    partition_index=st.integers(0, 2**31 - 1), error_code=st.integers(-1, 130), timestamp=OFFSETS, offset=OFFSETS,
    leader_epoch=st.integers(-1, 2**31 - 1), old_style_offsets=st.just([]),
)  # fmt: skip
TOPICS = st.builds(
    _Topic,
    name=st.text(st.characters(codec="utf-8"), max_size=200),
    partitions=st.lists(PARTITIONS, max_size=10),
)


@pytest.mark.parametrize("version", range(FIRST_VERSION, 11))
@given(topics=st.lists(TOPICS, max_size=4))
def test_as_the_schema_has_it(version: int, topics: list[Any]) -> None:
    response = ListOffsetsResponse(topics=topics)
    expected = b"".join(encode_response(ListOffsetsResponse, version, 77, response))
    assert encode_listed(version, 77, topics) == expected


def test_more_partitions_than_one_byte_counts() -> None:
    rows = [
        _Topic.ListOffsetsPartitionResponse(
            partition_index=index, error_code=0, timestamp=-1, offset=index, leader_epoch=0, old_style_offsets=[]
        )
        for index in range(20_000)
    ]
    topics = [_Topic(name="t" * 127, partitions=rows)]
    expected = b"".join(encode_response(ListOffsetsResponse, 9, 77, ListOffsetsResponse(topics=topics)))
    assert encode_listed(9, 77, topics) == expected
