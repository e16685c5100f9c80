"""Topics that stay in their cluster although their namespace is replicated.

Messages between the gateways of one cluster are not meant for other clusters. The fencing producers of internal
topics exclude Pulsar's replicators.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from gateway.backoff import Backoff, retried
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.admin.topics import TopicPolicy
from gateway.pulsar.errors import RequestTimeoutError

PATIENCE_S, PAUSE_S = 20.0, 0.5
_FORBIDDEN = frozenset({401, 403})

log = structlog.get_logger()


class UnknownClusterError(AdminError):
    """Only a superuser may request the name of the local cluster."""


async def keep_local(admin: AdminClient, namespace: str, topic: str, partitions: Sequence[str]) -> None:
    """Keep the topic in this cluster; return when no partition is replicated any more. Raises PulsarError."""
    clusters = (await admin.namespaces.policies(namespace)).get("replication_clusters") or []
    if len(clusters) < 2:
        return
    await _set_policy(admin, topic, [await _local_cluster(admin)])
    for partition in partitions:
        await _until_unreplicated(admin, partition)


async def _local_cluster(admin: AdminClient) -> str:
    try:
        return (await admin.brokers.runtime_configuration())["clusterName"]
    except AdminError as error:
        if error.status not in _FORBIDDEN:
            raise
        raise UnknownClusterError(
            error.status, "a replicated namespace needs a token that may read the brokers' configuration"
        ) from error


async def _set_policy(admin: AdminClient, topic: str, clusters: list[str]) -> None:
    """Retries, because the policy service of a new namespace needs a moment; until then topics may not be found."""
    await retried(
        lambda: admin.topics.set_policy(topic, TopicPolicy.REPLICATION, clusters),
        lambda error: isinstance(error, AdminError) and (error.retriable or error.not_found),
        Backoff(PAUSE_S),
        within_s=PATIENCE_S,
    )


async def _until_unreplicated(admin: AdminClient, partition: str) -> None:
    """Brokers apply a policy a moment after it is set."""
    for _ in range(round(PATIENCE_S / PAUSE_S)):
        if not (await admin.topics.stats(partition)).get("replication"):
            return
        await asyncio.sleep(PAUSE_S)
    raise RequestTimeoutError(f"{partition} is replicated, in spite of its policy")
