"""Structs that many messages share are encoded once for each version, to the same bytes."""

import uuid

import pytest

from protocol.kafka.buffers import SharedItems
from protocol.kafka.codec import encode_response
from protocol.kafka.messages.topics import MetadataResponse

Topic = MetadataResponse.MetadataResponseTopic
Partition = Topic.MetadataResponsePartition


def rows(count: int) -> list[Partition]:
    return [
        Partition(
            error_code=5, partition_index=number, leader_id=-1, leader_epoch=3, replica_nodes=[number, 1],
            isr_nodes=[1], offline_replicas=[],
        )
        for number in range(count)
    ]  # fmt: skip


def encoded(version: int, *of_topics: list[Partition]) -> bytes:
    topics = [
        Topic(name=f"t{number}", topic_id=uuid.UUID(int=number), partitions=partitions)
        for number, partitions in enumerate(of_topics)
    ]
    return b"".join(encode_response(MetadataResponse, version, 7, MetadataResponse(topics=topics)))


@pytest.mark.parametrize("version", range(14))
def test_the_bytes_are_the_same_each_time(version: int) -> None:
    shared, none = SharedItems(rows(3)), SharedItems[Partition](())
    expected = encoded(version, rows(3), rows(2), rows(0), rows(3))
    for _ in range(2):
        assert encoded(version, shared, rows(2), none, shared) == expected
    assert list(shared.encoded) == [version]


def test_versions_do_not_mix() -> None:
    shared = SharedItems(rows(3))
    for version in (12, 1, 5, 9, 12, 1):
        assert encoded(version, shared) == encoded(version, rows(3))


def test_they_are_encoded_once() -> None:
    shared = SharedItems(rows(1))
    before = encoded(12, shared)
    shared[0].leader_id = 9  # they must not be changed; here it shows that nobody looks at them
    assert encoded(12, shared) == before
