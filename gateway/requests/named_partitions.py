"""The topic of a partition that a request names."""

from __future__ import annotations

from gateway.errors import KafkaError
from gateway.requests.brokers import check_leader
from gateway.requests.call import Call
from gateway.topics.topic import Topic
from protocol.kafka.errors import ErrorCode


async def topic_of(call: Call, name: str, partition: int) -> Topic:
    """Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION, and PulsarError."""
    topic = await call.topics.with_partition(name, partition)
    if topic is None or not 0 <= partition < topic.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


async def led_topic_of(call: Call, name: str, partition: int, client_epoch: int = -1) -> Topic:
    """As `topic_of`, for a partition that this gateway leads. Raises also the KafkaErrors of `check_leader`."""
    topic = await topic_of(call, name, partition)
    check_leader(call, name, partition, client_epoch)
    return topic
