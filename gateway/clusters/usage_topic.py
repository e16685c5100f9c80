"""Publishes the usage of each cluster in a topic, so that billing need not query every gateway.

`~usage`, in the fleet's system namespace, gets a message for each cluster from each gateway every PUSH_S. The key is
the cluster and the gateway's node id, so compaction keeps the newest message. The value is JSON:

    version       1
    cluster       tenant/namespace
    node_id       node id of the gateway
    started_ms    since the epoch: when the gateway began to count for this cluster
    at_ms         since the epoch: when the message was created
    connections   of clients, at that time
    bytes_in      of requests, since the gateway began to count
    bytes_out     of responses, since the gateway began to count
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping

import structlog

from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.admin.topics import TopicPolicy
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position
from gateway.pulsar.producer import Producer
from gateway.requests.cluster import Usage
from gateway.topics.local_topics import keep_local
from protocol.pulsar.entry import encode_message

TOPIC = "~usage"
VERSION = 1
PUSH_S = 30.0
COMPACTION_BYTES = 1024 * 1024
RETENTION = {"retentionTimeInMinutes": 7 * 24 * 60, "retentionSizeInMB": 64}

log = structlog.get_logger()


class UsageTopic:
    """Nobody waits for receipts: the next message contains the counts of a lost one."""

    def __init__(
        self,
        client: PulsarClient,
        admin: AdminClient,
        namespace: str,
        node_id: Callable[[], int],
        usages: Callable[[], Mapping[str, Usage]],
    ) -> None:
        """`usages` are those of the clusters, by `tenant/namespace`."""
        self._client = client
        self._admin = admin
        self._namespace = namespace
        self._topic = f"persistent://{namespace}/{TOPIC}"
        self._node_id = node_id
        self._usages = usages
        self._producer: Producer | None = None

    async def keep_publishing(self) -> None:
        """Publish until cancelled."""
        try:
            while True:
                try:
                    await self._publish()
                except PulsarError as error:
                    log.warning("cannot publish the usage of clusters", error=str(error))
                await asyncio.sleep(PUSH_S)
        finally:
            if self._producer is not None:
                await self._producer.close()

    async def _publish(self) -> None:
        if self._producer is None:
            await self._prepare()
        if self._producer is None or self._producer.closed:
            self._producer = await self._client.open_producer(self._topic, self)
        messages = [self._message(cluster, usage) for cluster, usage in self._usages().items()]
        self._producer.send(messages, num_messages=len(messages), publish_time_ms=_now_ms())

    async def _prepare(self) -> None:
        topics = self._admin.topics
        try:
            await topics.create(self._topic)
        except AdminError as error:
            if not error.conflict:
                raise
        await keep_local(self._admin, self._namespace, self._topic, [self._topic])
        await topics.set_policy(self._topic, TopicPolicy.COMPACTION_THRESHOLD, COMPACTION_BYTES)
        await topics.set_policy(self._topic, TopicPolicy.RETENTION, RETENTION)

    def _message(self, cluster: str, usage: Usage) -> bytes:
        node_id = self._node_id()
        value = {
            "version": VERSION, "cluster": cluster, "node_id": node_id, "started_ms": usage.started_ms,
            "at_ms": _now_ms(), "connections": usage.connections, "bytes_in": usage.bytes_in,
            "bytes_out": usage.bytes_out,
        }  # fmt: skip
        return encode_message(json.dumps(value).encode(), key=f"{cluster} {node_id}".encode())

    # A SendListener

    def on_receipt(self, sequence_id: int, position: Position) -> None: ...

    def on_send_error(self, sequence_id: int, error: PulsarError) -> None:
        log.warning("cannot publish the usage of clusters", error=str(error))

    def on_producer_closed(self, error: PulsarError) -> None: ...


def _now_ms() -> int:
    return int(time.time() * 1000)
