"""Internal topics: key-compacted topics of the gateway's namespace that hold the state of coordinators.

Clients see them like Kafka's topics of the same name. They hold Kafka's own records, one Pulsar message each.
"""

from __future__ import annotations

from gateway.coordination.partition.trimming_cursor import SUBSCRIPTION
from gateway.errors import KafkaError
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.admin.topics import TopicPolicy
from gateway.topics.catalog import TopicCatalog
from gateway.topics.local_topics import keep_local
from gateway.topics.topic import Topic
from protocol.kafka.errors import ErrorCode

RETENTION_MINUTES = 3 * 24 * 60
"""How long Pulsar keeps entries that no cursor holds. If the trimming cursor is lost, the last snapshot stays."""
_CONFIGS = {"cleanup.policy": "compact", "retention.ms": "-1", "retention.bytes": "-1"}
_RETENTION = {"retentionTimeInMinutes": RETENTION_MINUTES, "retentionSizeInMB": -1}


async def prepare_internal_topic(
    topics: TopicCatalog, admin: AdminClient, name: str, partitions: int, segment_bytes: int
) -> Topic:
    """Create the topic if necessary, and return it as Pulsar has it: its partition count may differ.

    When `segment_bytes` were written to a partition since its last compaction, Pulsar starts the next. The policies
    are set each time: the gateway that created the topic may have died before it set them. Raises KafkaError and
    PulsarError.
    """
    topic = await topics.get(name, fresh=True)
    if topic is None:
        try:
            topic = await topics.create(name, partitions, _CONFIGS)
        except KafkaError as error:  # another gateway was faster
            topic = await topics.get(name, fresh=True) if error.code is ErrorCode.TOPIC_ALREADY_EXISTS else None
            if topic is None:
                raise
    namespace = topic.pulsar_name.removeprefix("persistent://").rpartition("/")[0]
    parts = [topic.pulsar_topic(number) for number in range(topic.partitions)]
    await keep_local(admin, namespace, topic.pulsar_name, parts)
    await _let_be_trimmed(admin, topic.pulsar_name)
    await admin.topics.set_policy(topic.pulsar_name, TopicPolicy.COMPACTION_THRESHOLD, segment_bytes)
    return topic


async def _let_be_trimmed(admin: AdminClient, topic: str) -> None:
    """In this order: entries that no cursor holds are deleted after the retention, and message TTL moves cursors."""
    try:
        await admin.topics.create_subscription(topic, SUBSCRIPTION)
    except AdminError as error:
        if not error.conflict:
            raise
    await admin.topics.set_policy(topic, TopicPolicy.MESSAGE_TTL, 0)
    await admin.topics.set_policy(topic, TopicPolicy.RETENTION, _RETENTION)
