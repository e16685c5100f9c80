"""Partitions that are left of a deleted topic: Pulsar creates no topic of the name as long as there is one.

They come from requests that add partitions while the topic is being deleted, perhaps by another gateway.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.admin.topics import PARTITION

log = structlog.get_logger()


async def create_partitioned(
    admin: AdminClient, topic: str, partitions: int, properties: Mapping[str, str]
) -> None:
    """Create the topic and its partitions. Raises AdminError, with status 409 if the topic exists."""
    try:
        await admin.topics.create_partitioned(topic, partitions, properties)
    except AdminError as error:
        if not error.conflict or not await _remove_left(admin, topic):
            raise
        await admin.topics.create_partitioned(topic, partitions, properties)


async def _remove_left(admin: AdminClient, topic: str) -> bool:
    """Delete what is left of the topic. False if the topic exists, or if there is data, which others may have written.

    A topic exists before its partitions, and longer than they do. So partitions that are listed between two moments
    without the topic are not those of a new one.
    """
    if await _exists(admin, topic):
        return False
    listed = await admin.topics.list_topics(topic.partition("://")[2].rpartition("/")[0])
    left = [name for name in listed if name.rpartition(PARTITION)[0] == topic]
    if not left or not all([await _is_empty(admin, name) for name in left]) or await _exists(admin, topic):
        return False
    for name in left:
        await admin.topics.delete(name)
    log.info("removed partitions of a deleted topic", topic=topic, partitions=len(left))
    return True


async def _exists(admin: AdminClient, topic: str) -> bool:
    try:
        await admin.topics.partitioned(topic)
    except AdminError as error:
        if not error.not_found:
            raise
        return False
    return True


async def _is_empty(admin: AdminClient, partition: str) -> bool:
    """False if only a cursor is left, which was written after the rest was deleted: no request removes it."""
    try:
        stats = await admin.topics.internal_stats(partition)
    except AdminError as error:
        if not error.not_found:
            raise
        return False
    return not any(ledger.entries for ledger in stats.ledgers)
