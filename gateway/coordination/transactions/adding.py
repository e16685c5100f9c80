"""Adding partitions to a transaction, which may come while the markers of the one before are still being written.

Kafka answers CONCURRENT_TRANSACTIONS then, and clients try again after 20 to 100 ms. Pulsar takes longer to store a
marker than a client to begin its next transaction, so that answer would be the rule: the request waits a while instead.
"""

from __future__ import annotations

import asyncio

from coordinator.transaction.coordinator import TransactionCoordinator
from coordinator.transaction.messages import AddPartitionsRequest
from gateway.coordination.partition.coordinators import Coordinators
from protocol.kafka.errors import ErrorCode

PATIENCE_S = 0.1


async def add_at_once(coordinators: Coordinators[TransactionCoordinator], request: AddPartitionsRequest) -> ErrorCode:
    """For leaders of partitions: markers that are written while they wait tell them to ask again (`verification`)."""
    return await coordinators.ask(
        request.transactional_id,
        lambda coordinator, now_ms, reply: coordinator.add_partitions(request, now_ms, reply),
        ErrorCode,
    )


async def add_when_free(coordinators: Coordinators[TransactionCoordinator], request: AddPartitionsRequest) -> ErrorCode:
    """What the coordinator says when it has no other transition of the id under way, or will not wait for it longer."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + PATIENCE_S
    while True:
        code = await add_at_once(coordinators, request)
        left_s = end_s - loop.time()
        if code is not ErrorCode.CONCURRENT_TRANSACTIONS or left_s <= 0:
            return code
        await _free(coordinators, request.transactional_id, left_s)


async def _free(coordinators: Coordinators[TransactionCoordinator], transactional_id: str, at_most_s: float) -> None:
    """Also when the coordinator is lost, after so long: it says nothing then."""
    freed = asyncio.Event()
    told = freed.set
    coordinators.run(transactional_id, lambda coordinator, now_ms: coordinator.tell_when_free(transactional_id, told))
    try:
        async with asyncio.timeout(at_most_s):
            await freed.wait()
    except TimeoutError:
        return
    finally:
        coordinators.run(transactional_id, lambda coordinator, now_ms: coordinator.tell_no_more(transactional_id, told))
