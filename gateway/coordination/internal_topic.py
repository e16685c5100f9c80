"""Internal topics: key-compacted topics of the gateway's namespace that hold the state of coordinators (DESIGN D6).

They look to clients like Kafka's own of the same name, and hold Kafka's own records, one Pulsar message each.
"""

from __future__ import annotations

from gateway.errors import KafkaError
from gateway.pulsar.admin import AdminClient
from gateway.pulsar.admin_topics import TopicPolicy
from gateway.topics.catalog import TopicCatalog
from gateway.topics.local_topics import keep_local
from gateway.topics.topic import Topic
from protocol.kafka.errors import ErrorCode

COMPACTION_THRESHOLD_BYTES = 100 * 1024 * 1024
"""Backlog behind the last compaction that starts the next; Kafka's segment size of these topics."""
_CONFIGS = {"cleanup.policy": "compact", "retention.ms": "-1", "retention.bytes": "-1"}
_KEEP_FOR_EVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


async def prepare_internal_topic(topics: TopicCatalog, admin: AdminClient, name: str, partitions: int) -> Topic:
    """Create the topic if need be, and return it as Pulsar has it: its partition count may be another.

    The policies are set each time: whoever created the topic may have died before. Raises KafkaError and PulsarError.
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
    await admin.topics.set_policy(topic.pulsar_name, TopicPolicy.RETENTION, _KEEP_FOR_EVER)
    await admin.topics.set_policy(topic.pulsar_name, TopicPolicy.COMPACTION_THRESHOLD, COMPACTION_THRESHOLD_BYTES)
    return topic
