"""Whether the broker that answers still owns a topic.

After a network partition, a broker may not know yet that another one has taken over its topics. BookKeeper refuses what
it writes, but it names an end of the log that is too early: acknowledged batches would be unknown, and their producers'
next ones out of order, which is a fatal error for clients. The metadata store knows the other broker's ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.topics import InternalStats
from gateway.pulsar.errors import ServiceNotReadyError

ROLLOVER_S = 0.2
"""An owner that opens a ledger stores it before it counts it as its own."""


async def as_owner(admin: AdminClient, topic: str, ask: Callable[[], Awaitable[InternalStats]]) -> InternalStats:
    """What ``ask`` returns, if the broker owns the topic. Raises ServiceNotReadyError, and what ``ask`` raises."""
    newest = max((await admin.topics.managed_ledger(topic)).ledger_ids, default=-1)
    stats = await ask()
    if not _knows(stats, newest):
        await asyncio.sleep(ROLLOVER_S)
        stats = await ask()
        if not _knows(stats, newest):
            raise ServiceNotReadyError(f"the broker does not know ledger {newest} of {topic}: another one owns it")
    return stats


def _knows(stats: InternalStats, newest: int) -> bool:
    return any(ledger.ledger_id >= newest for ledger in stats.ledgers) or newest < 0
