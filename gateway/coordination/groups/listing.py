"""ListGroups over all partitions that this gateway leads."""

from __future__ import annotations

from collections.abc import Collection

from coordinator.group.coordinator import GroupCoordinator
from coordinator.group.messages import ListedGroup
from gateway.coordination.partition.coordinators import Coordinators, retriable_error
from gateway.fan_out import in_steps, sliced
from protocol.kafka.errors import ErrorCode


async def list_groups(
    coordinators: Coordinators[GroupCoordinator], states: Collection[str], types: Collection[str]
) -> tuple[ErrorCode, list[ListedGroup]]:
    """The known groups that are coordinated here; a retriable error if the list is not complete."""
    states = {state.lower() async for state in sliced(states)}
    types = {group_type.lower() async for group_type in sliced(types)}
    error = ErrorCode.NONE if coordinators.partitions else ErrorCode.COORDINATOR_NOT_AVAILABLE
    groups: list[ListedGroup] = []
    for number, partition in enumerate(coordinators.partitions):
        ids = partition.run(lambda coordinator, now_ms: coordinator.group_ids())
        async for some in in_steps(ids or [""]):  # also without groups: the coordinator may not serve
            listed = partition.run(
                lambda coordinator, now_ms, some=some: coordinator.list_groups(states, types, some)  # type: ignore[misc]
            )
            groups.extend(listed.groups)
            if listed.error and coordinators.leads(number):
                error = retriable_error(listed.error)
                break
    return error, groups
