"""OffsetFetch requests that name a group again and again: a small request must not have a response of gigabytes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from coordinator.group.messages import FetchedOffset, FetchOffsetsRequest, FetchOffsetsResponse
from coordinator.topics import TopicPartition
from gateway import fan_out
from gateway.handlers.groups import offset_fetch
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import OffsetFetchRequest, OffsetFetchResponse

VERSION = 9
METADATA = "m" * 36
ROW_CHARS = offset_fetch.OFFSET_CHARS + len(METADATA)
_Group = OffsetFetchRequest.OffsetFetchRequestGroup


class Offsets:
    """Each group has offsets in two partitions."""

    def __init__(self) -> None:
        self.asked = 0

    def fetch_offsets(self, asked: FetchOffsetsRequest) -> FetchOffsetsResponse:
        self.asked += 1
        every = [TopicPartition("t", number) for number in range(2)]
        partitions = every if asked.partitions is None else asked.partitions
        return FetchOffsetsResponse(ErrorCode.NONE, {each: FetchedOffset(5, metadata=METADATA) for each in partitions})


@pytest.fixture(autouse=True)
def in_one_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are looked up side by side: after a pause, it may not be the first one that finds the room taken."""
    monkeypatch.setattr(fan_out, "SLICE_S", 60.0)


async def fetch(coordinator: Offsets, groups: list[_Group]) -> OffsetFetchResponse:
    cluster = SimpleNamespace(
        topics=SimpleNamespace(),
        group_service=SimpleNamespace(subscribed_offsets=AsyncMock(return_value={}), forget_topics=lambda topics: None),
        groups=SimpleNamespace(run=lambda group_id, ask: ask(coordinator, 0)),
    )
    call: Any = SimpleNamespace(
        request=OffsetFetchRequest(groups=groups), version=VERSION, cluster=cluster, count_error=lambda code: None
    )
    response = await offset_fetch.handle(call).result()
    assert isinstance(response, OffsetFetchResponse)
    return response


async def test_all_offsets_until_they_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the group is refused, and nothing more is looked up."""
    monkeypatch.setattr(offset_fetch, "REPEATED_CHARS", 20 * 2 * ROW_CHARS)
    coordinator = Offsets()
    response = await fetch(coordinator, [_Group(group_id="g", topics=None) for _ in range(200)])
    assert [row.error_code for row in response.groups] == [0] * 21 + [ErrorCode.INVALID_REQUEST] * 179
    assert {len(row.topics[0].partitions) for row in response.groups[:21]} == {2}
    assert coordinator.asked < 100


async def test_named_partitions_are_answered_until_their_metadata_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata is what makes an answer larger than its question."""
    monkeypatch.setattr(offset_fetch, "REPEATED_CHARS", 20 * len(METADATA))
    topics = [_Group.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    response = await fetch(Offsets(), [_Group(group_id="g", topics=topics) for _ in range(50)])
    assert {row.error_code for row in response.groups} == {0}
    rows = [row.topics[0].partitions[0] for row in response.groups]
    assert [row.committed_offset for row in rows] == [5] * 21 + [-1] * 29
    assert [row.error_code for row in rows] == [0] * 21 + [ErrorCode.INVALID_REQUEST] * 29


async def test_groups_that_are_named_once_need_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_fetch, "REPEATED_CHARS", 0)
    response = await fetch(Offsets(), [_Group(group_id=f"g{number}", topics=None) for number in range(50)])
    assert {row.error_code for row in response.groups} == {0}
