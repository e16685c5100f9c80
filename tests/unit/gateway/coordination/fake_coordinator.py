"""A partition of groups with these committed offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from coordinator.group.messages import FetchedOffset, FetchOffsetsRequest, FetchOffsetsResponse, ListedGroup
from coordinator.group.ports import TopicPartition
from protocol.kafka.errors import ErrorCode


class FakeCoordinator:
    def __init__(self, offsets: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        self._offsets = offsets

    def run(self, call: Callable[[Any, int], Any]) -> Any:
        return call(self, 0)

    def list_groups(self) -> Any:
        return SimpleNamespace(groups=[ListedGroup(group, "", "Empty", "classic") for group in self._offsets])

    def fetch_offsets(self, request: FetchOffsetsRequest) -> FetchOffsetsResponse:
        found = self._offsets[request.group_id]
        return FetchOffsetsResponse(ErrorCode.NONE, {key: FetchedOffset(offset) for key, offset in found.items()})
