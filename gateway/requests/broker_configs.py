"""A gateway's settings under the names of Kafka's broker configurations. Clients cannot change any of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pydantic import BaseModel

from gateway.config.gateway_config import Config
from gateway.requests.cluster import Cluster, Node
from gateway.topics.config_values import ConfigType
from gateway.topics.topic_configs import TOPIC_CONFIGS, TopicConfig

SOURCE_TOPIC, SOURCE_STATIC, SOURCE_DEFAULT, SOURCE_GROUP = 1, 4, 5, 8
KAFKA_RELEASE = "3.9-IV0"
"""Tools read inter.broker.protocol.version to learn which features they may expect."""
_B, _S, _I, _L = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG


class Synonym(NamedTuple):
    name: str
    value: str
    source: int


class BrokerConfig(NamedTuple):
    name: str
    kind: ConfigType
    value: str | None
    source: int
    documentation: str

    @property
    def synonyms(self) -> list[Synonym]:
        return [] if self.value is None else [Synonym(self.name, self.value, self.source)]


class EffectiveConfig(NamedTuple):
    """A topic's configuration and the source of its value: the first synonym is the effective one."""

    config: TopicConfig
    value: str
    synonyms: list[Synonym]

    @property
    def source(self) -> int:
        return self.synonyms[0].source if self.synonyms else SOURCE_DEFAULT


def effective_configs(cluster: Cluster, configs: Mapping[str, str]) -> list[EffectiveConfig]:
    """All configurations of a topic; `configs` are those that are set on the topic itself."""
    brokers, defaults = broker_configs(cluster), topic_defaults(cluster.config)
    rows = []
    for config in TOPIC_CONFIGS.values():
        broker = brokers.get(config.broker_config or "")
        synonyms = broker.synonyms if broker else []
        if config.name in configs:
            synonyms = [Synonym(config.name, configs[config.name], SOURCE_TOPIC), *synonyms]
        rows.append(EffectiveConfig(config, configs.get(config.name, defaults[config.name]), synonyms))
    return rows


def topic_defaults(config: Config) -> dict[str, str]:
    """The gateway's defaults for topics that do not set their own values."""
    own = {"max.message.bytes": str(config.limits.max_message_bytes), "retention.ms": _retention_ms(config)}
    return {topic_config.name: topic_config.default for topic_config in TOPIC_CONFIGS.values()} | own


def broker_configs(
    cluster: Cluster, node: Node | None = None, protocol: str = "PLAINTEXT"
) -> Mapping[str, BrokerConfig]:
    """By name: the defaults of topics, then the gateway's own settings. The client knows the gateway as `node`."""
    defaults = topic_defaults(cluster.config)
    rows = [
        BrokerConfig(
            topic_config.broker_config, topic_config.kind, defaults[topic_config.name], SOURCE_DEFAULT,
            f"Default of {topic_config.name} for all topics.",
        )
        for topic_config in TOPIC_CONFIGS.values()
        if topic_config.broker_config is not None
    ]  # fmt: skip
    rows += _identity(node or cluster.node, protocol) + _behaviour() + _settings(cluster.config)
    return {row.name: row for row in rows}


def _identity(node: Node, protocol: str) -> list[BrokerConfig]:
    address = f"{protocol}://{node.host}:{node.port}"
    return [
        BrokerConfig("advertised.listeners", _S, address, SOURCE_STATIC, "The address for clients."),
        BrokerConfig("broker.id", _I, str(node.node_id), SOURCE_STATIC, "The gateway's node id."),
        BrokerConfig("broker.rack", _S, node.rack, SOURCE_STATIC if node.rack else SOURCE_DEFAULT, "The rack."),
        BrokerConfig("node.id", _I, str(node.node_id), SOURCE_STATIC, "The gateway's node id."),
    ]


def _behaviour() -> list[BrokerConfig]:
    """Configurations that are the same in every gateway."""
    return [
        BrokerConfig("default.replication.factor", _I, "1", SOURCE_DEFAULT, "Pulsar replicates; clients see one copy."),
        BrokerConfig("delete.topic.enable", _B, "true", SOURCE_DEFAULT, "Clients may delete topics."),
        BrokerConfig("inter.broker.protocol.version", _S, KAFKA_RELEASE, SOURCE_DEFAULT, "The supported release."),
    ]


def _settings(config: Config) -> list[BrokerConfig]:
    kafka, groups, limits, pulsar = config.kafka, config.groups, config.limits, config.pulsar
    named: tuple[tuple[str, ConfigType, BaseModel, str], ...] = (
        ("auto.create.topics.enable", _B, kafka, "auto_create_topics"),
        ("connections.max.idle.ms", _L, limits, "connection_idle_ms"),
        ("fetch.max.bytes", _I, limits, "max_fetch_bytes"),
        ("group.consumer.heartbeat.interval.ms", _I, groups, "consumer_heartbeat_interval_ms"),
        ("group.consumer.max.size", _I, groups, "consumer_max_size"),
        ("group.consumer.migration.policy", _S, groups, "consumer_migration_policy"),
        ("group.consumer.session.timeout.ms", _I, groups, "consumer_session_timeout_ms"),
        ("group.initial.rebalance.delay.ms", _I, groups, "initial_rebalance_delay_ms"),
        ("group.max.session.timeout.ms", _I, groups, "max_session_timeout_ms"),
        ("group.max.size", _I, groups, "max_size"),
        ("group.min.session.timeout.ms", _I, groups, "min_session_timeout_ms"),
        ("max.connections", _I, limits, "max_connections"),
        ("max.incremental.fetch.session.cache.slots", _I, limits, "max_fetch_sessions"),
        ("message.max.bytes", _I, limits, "max_message_bytes"),
        ("num.partitions", _I, kafka, "default_partitions"),
        ("offsets.retention.minutes", _I, groups, "offsets_retention_minutes"),
        ("offsets.topic.num.partitions", _I, groups, "offsets_topic_partitions"),
        ("offsets.topic.segment.bytes", _I, groups, "offsets_topic_segment_bytes"),
        ("socket.request.max.bytes", _I, limits, "max_request_bytes"),
    )
    rows = [
        BrokerConfig(name, kind, _text(getattr(section, field)), _source(section, field), f"The setting {field}.")
        for name, kind, section, field in named
    ]
    is_set = _source(pulsar, "retention_minutes") == SOURCE_STATIC
    rows.append(
        # As in Kafka, where log.retention.hours has the default.
        BrokerConfig("log.retention.ms", _L, _retention_ms(config) if is_set else None,
                     SOURCE_STATIC if is_set else SOURCE_DEFAULT, "The setting retention_minutes.")
    )  # fmt: skip
    return rows


def _source(section: BaseModel, field: str) -> int:
    return SOURCE_STATIC if field in section.model_fields_set else SOURCE_DEFAULT


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _retention_ms(config: Config) -> str:
    minutes = config.pulsar.retention_minutes
    return str(-1 if minutes < 0 else minutes * 60_000)
