"""Transactional offsets in tests: names, and requests of clients."""

from typing import Any

from coordinator.group.messages import (
    DeleteOffsetsResponse,
    FetchedOffset,
    FetchOffsetsRequest,
)
from coordinator.topics import TopicPartition
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.group.group_harness import CONFIG, Harness, Parked

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
U0 = TopicPartition("u", 0)
UNSTABLE = FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
OLD_ID, NEW_ID = b"o" * 16, b"n" * 16
RETENTION_MS = CONFIG.offsets_retention_ms
V1, V2 = 1, 2


def fetch(h: Harness, *partitions: TopicPartition, stable: bool = False, group: str = "g") -> dict[TopicPartition, Any]:
    response = h.coordinator.fetch_offsets(FetchOffsetsRequest(group, partitions or None, stable))
    assert response.error is ErrorCode.NONE
    return dict(response.offsets)


def delete(h: Harness, *partitions: TopicPartition) -> ErrorCode:
    parked = Parked[DeleteOffsetsResponse]()
    h.coordinator.delete_offsets("g", partitions, h.now_ms, parked)
    h.finish_all()
    return parked.answer.error


def delete_group(h: Harness) -> ErrorCode:
    parked: Parked[Any] = Parked()
    h.coordinator.delete_groups(["g"], h.now_ms, parked)
    h.finish_all()
    error: ErrorCode = parked.answer["g"]
    return error
