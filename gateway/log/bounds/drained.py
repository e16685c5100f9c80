"""Whether a broker has written all that it had received."""

from __future__ import annotations

from gateway.backoff import Backoff
from gateway.pulsar.admin import AdminClient
from gateway.pulsar.admin_topics import InternalStats
from gateway.pulsar.errors import RequestTimeoutError

DRAIN_PAUSE_S = 0.2
FIRST_DRAIN_PAUSE_S = 0.005
"""Most that waits for the disks is there in milliseconds: the broker is asked again soon, then less and less often."""
DRAIN_CHECKS = 50
"""So often is the broker asked whether it is still writing."""


async def drained(admin: AdminClient, topic: str) -> InternalStats:
    """The topic when all that the broker had received at the time of the call is written, whoever sent it.

    What was sent over a connection that is lost may still wait for the disks, and no new entry overtakes it. Raises
    PulsarError.
    """
    stats = await admin.topics.internal_stats(topic)
    first = stats.entries_added
    target = first + stats.pending_adds
    backoff = Backoff(FIRST_DRAIN_PAUSE_S, DRAIN_PAUSE_S)
    for _ in range(DRAIN_CHECKS):
        if stats.pending_adds == 0 or not first <= stats.entries_added < target:  # counts from 0 in a loaded topic
            return stats
        await backoff.pause()
        stats = await admin.topics.internal_stats(topic)
    raise RequestTimeoutError("the broker does not come to an end with writing")
