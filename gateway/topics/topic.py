"""One Kafka topic, and how a Pulsar topic's properties store its id and configurations.

A topic that was created with Pulsar's own tools has neither; its id is then derived from its name. An unpartitioned
topic is a Kafka topic with one partition.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.topics import PARTITION, PartitionedTopic
from gateway.topics.topic_configs import DEFAULTS, has_policy, usable_configs, writes_messages

TOPIC_ID = "kafka.topic.id"
CONFIG_PREFIX = "kafka.config."
MESSAGES_ONLY = "kafka.messages.only"
"""Property of a topic whose entries all contain messages: Pulsar can compact such a topic."""
HAS_TRANSACTIONS = "kafka.transactions"
"""Property of a topic with transactional batches. Pulsar does not compact such a topic automatically: its compactor
keeps the last message of a key, open or aborted, and removes the committed one before it, and also markers, which have
no key."""
COMPACTION_KEYS = "kafka.compaction.keys"
"""Property of a topic that was compacted when its first transaction began. From then on, each message has a compaction
key of its own (`message_entry`), and the gateway chooses the messages that Pulsar's compaction removes."""
COMPACTION_ENDS = "kafka.compaction.ends"
"""Property: how often a topic with compaction keys was no longer compacted. What Pulsar had removed is there again,
also if the topic is compacted again before all gateways have seen the change."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as it was ``loaded_at`` (monotonic seconds)."""

    name: str
    pulsar_name: str
    topic_id: uuid.UUID
    partitions: int
    partitioned: bool
    configs: Mapping[str, str]
    loaded_at: float = field(compare=False)
    defaults: Mapping[str, str] = field(default_factory=lambda: DEFAULTS, compare=False)
    messages_only: bool = False
    """Every entry contains messages: Pulsar can compact the topic."""
    has_transactions: bool = False
    has_compaction_keys: bool = False
    """Each new message has a key of its own for Pulsar's compaction."""
    compaction_ends: int = 0
    writes_messages: bool = field(init=False, compare=False)
    """Each record becomes a separate Pulsar message (``entry.format=pulsar``)."""
    compacts: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "writes_messages", writes_messages(self.configs))
        object.__setattr__(self, "compacts", has_policy(self.configs, "compact"))

    def pulsar_topic(self, partition: int) -> str:
        return partition_name(self.pulsar_name, partition) if self.partitioned else self.pulsar_name

    def config(self, name: str) -> str:
        return self.configs.get(name, self.defaults[name])

    @property
    def config_properties(self) -> dict[str, str]:
        """The properties that a change of configurations writes."""
        found = config_properties(self.configs, messages_only=self.messages_only)
        found |= {HAS_TRANSACTIONS: "true"} if self.has_transactions else {}
        found |= {COMPACTION_ENDS: str(self.compaction_ends)} if self.compaction_ends else {}
        return found | {COMPACTION_KEYS: "true"} if self.has_compaction_keys else found


def partition_name(pulsar_name: str, partition: int) -> str:
    return f"{pulsar_name}{PARTITION}{partition}"


async def read_topic(admin: AdminClient, pulsar_name: str) -> PartitionedTopic:
    """A topic's properties, and its partitions: 0 if not partitioned. Raises AdminError, 404 if there is no topic."""
    found = await admin.topics.partitioned(pulsar_name)
    if found.partitions > 0:
        return found
    return PartitionedTopic(0, await admin.topics.properties(pulsar_name))


def config_properties(configs: Mapping[str, str], *, messages_only: bool) -> dict[str, str]:
    found = {CONFIG_PREFIX + key: value for key, value in configs.items()}
    return found | {MESSAGES_ONLY: "true"} if messages_only else found


def stored_configs(pulsar_name: str, properties: Mapping[str, str]) -> Mapping[str, str]:
    stored = {
        key.removeprefix(CONFIG_PREFIX): value for key, value in properties.items() if key.startswith(CONFIG_PREFIX)
    }
    configs, unusable = usable_configs(stored)
    if unusable:
        log.warning("properties of a topic are no configurations", topic=pulsar_name, configs=unusable)
    return configs


def stored_ends(properties: Mapping[str, str]) -> int:
    try:
        return max(0, int(properties.get(COMPACTION_ENDS, "0")))
    except ValueError:
        return 0


def topic_id(stored: str | None, pulsar_name: str) -> uuid.UUID:
    try:
        return uuid.UUID(stored) if stored else uuid.uuid5(uuid.NAMESPACE_URL, pulsar_name)
    except ValueError:
        return uuid.uuid5(uuid.NAMESPACE_URL, pulsar_name)
