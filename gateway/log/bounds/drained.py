"""Waits until a broker has written all that it has received."""

from __future__ import annotations

from gateway.backoff import Backoff
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.topics import InternalStats
from gateway.pulsar.errors import RequestTimeoutError

DRAIN_PAUSE_S = 0.2
FIRST_DRAIN_PAUSE_S = 0.005
"""Most pending entries are on disk within milliseconds: the first retry comes soon, later ones less and less often."""
DRAIN_CHECKS = 50
"""The maximum number of requests that check whether the broker is still writing."""


async def drained(admin: AdminClient, topic: str) -> InternalStats:
    """The topic's statistics, once all that the broker had received from any client before the call is written.

    Entries that were sent over a lost connection may still wait for the disks, and no new entry overtakes them. The
    statistics count them only from the time at which the topic's thread in the broker has taken them up, so a request
    that passes through this thread goes first. Raises PulsarError.
    """
    await admin.topics.trim(topic)
    stats = await admin.topics.internal_stats(topic)
    first = stats.entries_added
    target = first + stats.pending_adds
    backoff = Backoff(FIRST_DRAIN_PAUSE_S, DRAIN_PAUSE_S)
    for _ in range(DRAIN_CHECKS):
        if stats.pending_adds == 0 or not first <= stats.entries_added < target:  # a reloaded topic counts from 0
            return stats
        await backoff.pause()
        stats = await admin.topics.internal_stats(topic)
    raise RequestTimeoutError("the broker still has pending writes")
