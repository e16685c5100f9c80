"""A partition of groups with these committed offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coordinator.group.messages import FetchedOffset, FetchOffsetsRequest, FetchOffsetsResponse
from coordinator.group.records.offset_commit import OffsetCommitValue
from coordinator.topics import TopicPartition
from protocol.kafka.errors import ErrorCode


class FakeCoordinator:
    def __init__(self, offsets: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        self._offsets = offsets
        self.serves = True

    def run(self, call: Callable[[Any, int], Any]) -> Any:
        return call(self, 0)

    def group_ids(self) -> list[str]:
        return [*self._offsets]

    def committed(self, group_id: str) -> Mapping[TopicPartition, OffsetCommitValue]:
        return {partition: OffsetCommitValue(offset, "", 0) for partition, offset in self._offsets[group_id].items()}

    def fetch_offsets(self, request: FetchOffsetsRequest) -> FetchOffsetsResponse:
        found = self._offsets[request.group_id]
        return FetchOffsetsResponse(ErrorCode.NONE, {key: FetchedOffset(offset) for key, offset in found.items()})
