"""Produce requests that wait for an earlier request of their connection: what they will need is prepared meanwhile.

Some clients write to each partition with a request of its own. After a takeover no log is open, and without this a
client would wait for one partition after the other.
"""

from __future__ import annotations

import asyncio

from coordinator.fleet.leadership import PartitionRole
from gateway.background import run_once
from gateway.errors import KafkaError
from gateway.pulsar.errors import PulsarError
from gateway.requests.brokers import check_leader
from gateway.requests.call import Call
from gateway.requests.policy import ALL_ALLOWED
from gateway.topics.topic import Topic
from gateway.topics.topic_names import INTERNAL_TOPICS
from protocol.kafka.acl import AclOperation, ResourceType
from protocol.kafka.batch import BatchHeader, CorruptBatch, InvalidBatch, parse_header
from protocol.kafka.handwritten.produce_request import ProducedPartition
from protocol.kafka.messages.records import ProduceRequest

MAX_PREPARATIONS = 500
"""The number of partitions of one connection that are prepared at the same time; others are left to their requests."""


class ExpectedProduces:
    """The preparations for one connection. Nothing is decided here: a request meets its errors when it is handled."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def expect(self, call: Call[ProduceRequest]) -> None:
        """Begin to open the logs that the request needs. The preparations end by themselves."""
        for of_topic in call.request.topic_data:
            name = of_topic.name or call.cluster.topics.cached_name(of_topic.topic_id)
            topic = call.cluster.topics.cached(name) if name else None
            if topic is None or not _may_write(call, topic.name):
                continue
            for partition in of_topic.partition_data:
                if 0 <= partition.index < topic.partitions:
                    self._begin(call, topic, partition)

    def _begin(self, call: Call[ProduceRequest], topic: Topic, partition: ProducedPartition) -> None:
        header = _header(partition) if len(self._tasks) < MAX_PREPARATIONS else None
        found = call.cluster.logs.find(topic.name, partition.index)
        if header is None or (found is not None and found.ready_for(header, call.client.number, call.client.arrived_s)):
            return
        task = run_once("expected produce", _prepare(call, topic, partition.index, header))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """The client has disconnected. Logs that are being opened are opened nevertheless."""
        for task in self._tasks:
            task.cancel()


def _may_write(call: Call[ProduceRequest], name: str) -> bool:
    policy = call.context.policy
    if name in INTERNAL_TOPICS:
        return False
    return policy is ALL_ALLOWED or policy.allows(AclOperation.WRITE, ResourceType.TOPIC, name)


def _header(partition: ProducedPartition) -> BatchHeader | None:
    """None if the batch is unusual: nothing is prepared for it."""
    try:
        header = parse_header(memoryview(partition.records or b""))
    except (CorruptBatch, InvalidBatch):
        return None
    return None if header.is_transactional else header


async def _prepare(call: Call[ProduceRequest], topic: Topic, index: int, header: BatchHeader) -> None:
    try:
        async with asyncio.timeout(call.request.timeout_ms / 1000):
            check_leader(call, topic.name, index)
            log = await call.cluster.logs.open(topic, index, urgent=True)
            check_leader(call, topic.name, index)
            # As for the request itself: only then has the previous leader written its last batches.
            role = call.cluster.fleet.role(topic.name, index)
            if header.producer_id >= 0:
                call.cluster.openings_ahead.needed(topic, index, call.cluster.fleet, call.cluster.logs)
            if header.producer_id < 0 or role is PartitionRole.LEADING:
                await log.prepare(header, call.client.number, call.client.arrived_s)
    except (KafkaError, PulsarError, TimeoutError, OSError):
        """The request meets the same error, or no error any more."""
