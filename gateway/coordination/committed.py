"""Every committed offset of a coordinator, read group by group so that other work runs in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from coordinator.group.messages import FetchOffsetsRequest
from coordinator.group.ports import TopicPartition
from gateway.coordination.group_partition import GroupPartition


async def iter_committed(partition: GroupPartition) -> AsyncIterator[tuple[str, dict[TopicPartition, int]]]:
    """(group id, its offsets); nothing for a group that has gone meanwhile."""
    listed = partition.run(lambda coordinator, now_ms: coordinator.list_groups())
    for group in listed.groups:
        asked = FetchOffsetsRequest(group.group_id)
        answer = partition.run(lambda coordinator, now_ms, asked=asked: coordinator.fetch_offsets(asked))  # type: ignore[misc]
        yield group.group_id, {key: fetched.offset for key, fetched in answer.offsets.items()}
        await asyncio.sleep(0)
