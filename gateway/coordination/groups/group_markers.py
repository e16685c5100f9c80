"""The end of a transaction in a partition of `__consumer_offsets`, for all offsets that its producer has there."""

from __future__ import annotations

import asyncio

from coordinator.group.coordinator import GroupCoordinator
from coordinator.group.messages import EndOfTransaction
from gateway.coordination.partition.coordinators import Coordinators
from protocol.kafka.errors import ErrorCode


async def write_group_marker(
    groups: Coordinators[GroupCoordinator], partition: int, marker: EndOfTransaction
) -> ErrorCode:
    """Answered when the end is durable; NONE also if nothing is open, as when the marker comes again.

    INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED mean that it comes too late. After
    NOT_LEADER_OR_FOLLOWER, because the partition is loading or elsewhere or its log has failed, it is to be sent
    again: it may have been stored or not, and will not be later without being known to the next attempt.
    """
    if not 0 <= partition < len(groups.partitions):  # also while the topic is being prepared
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def reply(error: ErrorCode) -> None:
        if not answer.done():  # else the coordinator of transactions has given up
            answer.set_result(error)

    groups.partitions[partition].run(lambda coordinator, now_ms: coordinator.end_transaction(marker, now_ms, reply))
    return await answer
