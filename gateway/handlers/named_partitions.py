"""The topic of a partition that a request names."""

from __future__ import annotations

from gateway.handlers.call import Call
from gateway.storage.errors import KafkaError
from gateway.storage.topics import Topic
from protocol.kafka.errors import ErrorCode


async def topic_of(call: Call, name: str, partition: int) -> Topic:
    """Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION, and PulsarError."""
    topic = await call.services.topics.get(name)
    if topic is not None and partition >= topic.partitions:  # it may have grown
        topic = await call.services.topics.get(name, fresh=True)
    if topic is None or not 0 <= partition < topic.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic
