"""The end of a transaction in a partition of `__consumer_offsets`: for all pending offsets of its producer there."""

from __future__ import annotations

import asyncio

from coordinator.group.coordinator import GroupCoordinator
from coordinator.group.messages import EndOfTransaction
from gateway.coordination.partition.coordinators import Coordinators
from protocol.kafka.errors import ErrorCode


async def write_group_marker(
    groups: Coordinators[GroupCoordinator], partition: int, marker: EndOfTransaction
) -> ErrorCode:
    """Answered when the end is durable. Also NONE if nothing is open, for example when the marker is repeated.

    INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED mean that the marker comes too late.
    NOT_LEADER_OR_FOLLOWER means that the partition is loading or elsewhere, or that its log has failed. The sender
    must retry after it: the marker may or may not be stored, and is not stored later without the next attempt
    detecting it.
    """
    if not 0 <= partition < len(groups.partitions):  # also while the topic is being prepared
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def reply(error: ErrorCode) -> None:
        if not answer.done():  # otherwise the transaction coordinator no longer waits
            answer.set_result(error)

    groups.partitions[partition].run(lambda coordinator, now_ms: coordinator.end_transaction(marker, now_ms, reply))
    return await answer
