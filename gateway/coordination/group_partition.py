"""A partition of `__consumer_offsets`: its coordinator, and all offsets that are committed in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from coordinator.group.coordinator import GroupCoordinator
from coordinator.group.records.codec import encode_record
from coordinator.group.records.group_metadata import GroupMetadataKey
from coordinator.slices import SLICE_UNITS, SliceCounter
from coordinator.topics import TopicPartition
from gateway.coordination.partition.coordinator_partition import CoordinatorPartition

BARRIER = encode_record(GroupMetadataKey(""), None)
"""The tombstone of a group that cannot exist: groups with members have names. Every reader skips it."""

GroupPartition = CoordinatorPartition[GroupCoordinator]


async def iter_committed(partition: GroupPartition) -> AsyncIterator[tuple[str, dict[TopicPartition, int]]]:
    """Yields (group id, some of its offsets); nothing for a group deleted in the meantime. Other work can run."""
    counter = SliceCounter()
    for group_id in partition.run(lambda coordinator, now_ms: coordinator.group_ids()):
        committed = partition.run(lambda coordinator, now_ms, group_id=group_id: coordinator.committed(group_id))  # type: ignore[misc]
        offsets = [*committed.items()]
        for start in range(0, len(offsets), SLICE_UNITS):
            some = offsets[start : start + SLICE_UNITS]
            yield group_id, {partition: value.offset for partition, value in some}
            if counter.is_full(len(some)):
                await asyncio.sleep(0)
        if counter.is_full(1):
            await asyncio.sleep(0)
