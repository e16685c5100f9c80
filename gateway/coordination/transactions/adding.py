"""Adding partitions to a transaction while the markers of the previous transaction may still be in flight.

Kafka answers CONCURRENT_TRANSACTIONS in this case, and clients retry after 20 to 100 ms. Pulsar takes longer to
store a marker than a client takes to begin its next transaction, so this answer would be the rule. Therefore the
request waits for a short time instead.
"""

from __future__ import annotations

import asyncio

from coordinator.transaction.coordinator import TransactionCoordinator
from coordinator.transaction.messages import AddPartitionsRequest
from gateway.coordination.partition.coordinators import Coordinators
from protocol.kafka.errors import ErrorCode

PATIENCE_S = 0.1


async def add_at_once(coordinators: Coordinators[TransactionCoordinator], request: AddPartitionsRequest) -> ErrorCode:
    """For partition leaders, which do not wait here: a marker that is written in the meantime makes them retry
    (`handlers.records.verification`).
    """
    return await coordinators.ask(
        request.transactional_id,
        lambda coordinator, now_ms, reply: coordinator.add_partitions(request, now_ms, reply),
        ErrorCode,
    )


async def add_when_free(coordinators: Coordinators[TransactionCoordinator], request: AddPartitionsRequest) -> ErrorCode:
    """The coordinator's answer; CONCURRENT_TRANSACTIONS if another transition of the id outlasts PATIENCE_S."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + PATIENCE_S
    while True:
        code = await add_at_once(coordinators, request)
        left_s = end_s - loop.time()
        if code is not ErrorCode.CONCURRENT_TRANSACTIONS or left_s <= 0:
            return code
        await _free(coordinators, request.transactional_id, left_s)


async def _free(coordinators: Coordinators[TransactionCoordinator], transactional_id: str, at_most_s: float) -> None:
    """Waits until no transition of the id runs, at most for this time: a lost coordinator does not call back."""
    freed = asyncio.Event()
    call = freed.set
    coordinators.run(transactional_id, lambda coordinator, now_ms: coordinator.notify_when_free(transactional_id, call))
    try:
        async with asyncio.timeout(at_most_s):
            await freed.wait()
    except TimeoutError:
        return
    finally:
        coordinators.run(transactional_id, lambda coordinator, _: coordinator.stop_notifying(transactional_id, call))
