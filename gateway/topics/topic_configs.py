"""Kafka's topic configurations: their names, defaults, valid values, and effects in the gateway.

Configurations that Pulsar acts on are mapped to its policies in topic_policies.py. The others are stored and returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from gateway.errors import KafkaError
from gateway.topics.config_values import (
    LONG_MAX,
    ConfigType,
    InvalidValue,
    Parse,
    boolean,
    gzip_level,
    list_of,
    message_format,
    one_of,
    ratio,
    throttled_replicas,
    whole,
)
from protocol.kafka.errors import ErrorCode

ENTRY_FORMAT = "entry.format"
"""The gateway's own configuration: Kafka does not have it."""


class Effect(StrEnum):
    """The effect of a value other than the default."""

    GATEWAY = "the gateway does it"
    PULSAR = "becomes a policy of the Pulsar topic"
    KEPT = "none: kept and returned"
    REFUSED = "only the default is accepted"


@dataclass(frozen=True, slots=True)
class TopicConfig:
    name: str
    kind: ConfigType
    default: str
    parse: Parse
    broker_config: str | None
    """The broker's configuration with the default for all topics; DescribeConfigs calls it a synonym."""
    documentation: str
    effect: Effect = Effect.KEPT


_B, _S, _I, _L, _D, _LIST = (
    ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST,
)  # fmt: skip
_MAX = str(LONG_MAX)
_KEPT = " Kept and returned, without effect: "
_BOOKKEEPER = _KEPT + "BookKeeper stores the data."
_COMPACTOR = _KEPT + "Pulsar's compaction has no such setting."
_NOT_TIERED = _KEPT + "tiered storage is set up in Pulsar."
_LEADER_THROTTLE = "leader.replication.throttled.replicas"
_FOLLOWER_THROTTLE = "follower.replication.throttled.replicas"
_TIMESTAMP_MS = "message.timestamp."
MAX_VALUE_LENGTH = 2**15 - 1
"""Of a configuration's value, as in Kafka."""

TOPIC_CONFIGS: Mapping[str, TopicConfig] = {
    config.name: config
    for config in (
        TopicConfig("cleanup.policy", _LIST, "delete", list_of("compact", "delete"), "log.cleanup.policy",
            "How old records are removed: delete removes them after retention.ms or retention.bytes, compact keeps the "
            "last record of each key. Pulsar's compaction compacts topics that had this policy from their first "
            "record on.",
            Effect.PULSAR),
        TopicConfig("compression.gzip.level", _I, "-1", gzip_level, "compression.gzip.level",
            "Level for compression.type=gzip." + _KEPT + "the default level is used."),
        TopicConfig("compression.lz4.level", _I, "9", whole(_I, 1, 17), "compression.lz4.level",
            "Level for compression.type=lz4." + _KEPT + "the default level is used."),
        TopicConfig("compression.type", _S, "producer",
            one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), "compression.type",
            "How batches are stored: as the producer compressed them, or compressed again by the gateway.",
            Effect.GATEWAY),
        TopicConfig("compression.zstd.level", _I, "3", whole(_I, -131072, 22), "compression.zstd.level",
            "Level for compression.type=zstd." + _KEPT + "the default level is used."),
        TopicConfig("delete.retention.ms", _L, "86400000", whole(_L, 0), "log.cleaner.delete.retention.ms",
            "How long tombstones stay in compacted topics with transactions. In others, Pulsar's compaction removes "
            "them at once.", Effect.GATEWAY),
        TopicConfig(ENTRY_FORMAT, _S, "auto", one_of("auto", "kafka", "pulsar"), None,
            "How records are stored in Pulsar: kafka keeps whole record batches, pulsar writes a message for each "
            "record, which native Pulsar consumers read. auto means pulsar for compacted topics and kafka for all "
            "others.",
            Effect.GATEWAY),
        TopicConfig("file.delete.delay.ms", _L, "60000", whole(_L, 0), "log.segment.delete.delay.ms",
            "How long a deleted segment's file stays." + _BOOKKEEPER),
        TopicConfig("flush.messages", _L, _MAX, whole(_L, 1), "log.flush.interval.messages",
            "Records between two forced writes to disk." + _BOOKKEEPER),
        TopicConfig("flush.ms", _L, _MAX, whole(_L, 0), None,
            "Time between two forced writes to disk." + _BOOKKEEPER),
        TopicConfig(_FOLLOWER_THROTTLE, _LIST, "", throttled_replicas(_FOLLOWER_THROTTLE), None,
            "Followers whose replication is throttled." + _BOOKKEEPER),
        TopicConfig("index.interval.bytes", _I, "4096", whole(_I, 0), "log.index.interval.bytes",
            "Bytes between two entries of a segment's index." + _BOOKKEEPER),
        TopicConfig(_LEADER_THROTTLE, _LIST, "", throttled_replicas(_LEADER_THROTTLE), None,
            "Leaders whose replication is throttled." + _BOOKKEEPER),
        TopicConfig("local.retention.bytes", _L, "-2", whole(_L, -2), "log.local.retention.bytes",
            "Size of what tiered storage leaves on the brokers." + _NOT_TIERED),
        TopicConfig("local.retention.ms", _L, "-2", whole(_L, -2), "log.local.retention.ms",
            "Age of what tiered storage leaves on the brokers." + _NOT_TIERED),
        TopicConfig("max.compaction.lag.ms", _L, _MAX, whole(_L, 1), "log.cleaner.max.compaction.lag.ms",
            "How long a record may stay uncompacted." + _COMPACTOR),
        TopicConfig("max.message.bytes", _I, "1048588", whole(_I, 0), "message.max.bytes",
            "The largest record batch that is accepted, as the producer compressed it. Pulsar's maxMessageSize bounds "
            "it too.",
            Effect.GATEWAY),
        TopicConfig("message.downconversion.enable", _B, "true", boolean, "log.message.downconversion.enable",
            "Whether consumers before Kafka 0.11 get the record formats that they know; otherwise they get an error.",
            Effect.GATEWAY),
        TopicConfig("message.format.version", _S, "3.0-IV1", message_format, "log.message.format.version",
            "The record format of old brokers." + _KEPT + "so it is in Kafka since 3.0."),
        TopicConfig(_TIMESTAMP_MS + "after.max.ms", _L, _MAX, whole(_L, 0), "log.message.timestamp.after.max.ms",
            "How far a record's timestamp may lie in the future; judged by the latest of its batch.",
            Effect.GATEWAY),
        TopicConfig(_TIMESTAMP_MS + "before.max.ms", _L, _MAX, whole(_L, 0), "log.message.timestamp.before.max.ms",
            "How far a record's timestamp may lie in the past; judged by the first of its batch.",
            Effect.GATEWAY),
        TopicConfig(_TIMESTAMP_MS + "difference.max.ms", _L, _MAX, whole(_L, 0),
            "log.message.timestamp.difference.max.ms",
            "How far a record's timestamp may be off, where the settings for past and future have their defaults.",
            Effect.GATEWAY),
        TopicConfig("message.timestamp.type", _S, "CreateTime", one_of("CreateTime", "LogAppendTime"),
            "log.message.timestamp.type",
            "Whether records keep their producer's timestamps or get the time at which the gateway appends them.",
            Effect.GATEWAY),
        TopicConfig("min.cleanable.dirty.ratio", _D, "0.5", ratio, "log.cleaner.min.cleanable.ratio",
            "How much of a compacted topic with transactions must be new before it is cleaned. Pulsar's compaction of "
            "others has no such setting.", Effect.GATEWAY),
        TopicConfig("min.compaction.lag.ms", _L, "0", whole(_L, 0), "log.cleaner.min.compaction.lag.ms",
            "How long a record of a compacted topic with transactions stays at least. Pulsar's compaction of others "
            "has no such setting.", Effect.GATEWAY),
        TopicConfig("min.insync.replicas", _I, "1", whole(_I, 1), "min.insync.replicas",
            "Replicas that must have a record before it is acknowledged." + _KEPT + "Pulsar's write and ack quorums "
            "decide."),
        TopicConfig("preallocate", _B, "false", boolean, "log.preallocate",
            "Whether segment files are allocated beforehand." + _BOOKKEEPER),
        TopicConfig("remote.log.copy.disable", _B, "false", boolean, None,
            "Whether tiered storage gets no more data." + _NOT_TIERED),
        TopicConfig("remote.log.delete.on.disable", _B, "false", boolean, None,
            "Whether tiered data is deleted when it is turned off." + _NOT_TIERED),
        TopicConfig("remote.storage.enable", _B, "false", boolean, None,
            "Tiered storage as Kafka has it; it cannot be turned on. Pulsar has its own.",
            Effect.REFUSED),
        TopicConfig("retention.bytes", _L, "-1", whole(_L), "log.retention.bytes",
            "Size of a partition above which its oldest records are deleted, -1 for no limit. Becomes Pulsar's "
            "retention, in MB rounded up; Pulsar deletes whole ledgers.",
            Effect.PULSAR),
        TopicConfig("retention.ms", _L, "604800000", whole(_L, -1), "log.retention.ms",
            "Age at which records are deleted, -1 for never. Becomes Pulsar's retention, in minutes rounded up, and "
            "its message TTL; Pulsar deletes whole ledgers.",
            Effect.PULSAR),
        TopicConfig("segment.bytes", _I, "1073741824", whole(_I, 14), "log.segment.bytes",
            "Size of a segment. Pulsar's ledgers have their own size; for compacted topics a smaller value makes "
            "Pulsar compact after as many new bytes.",
            Effect.PULSAR),
        TopicConfig("segment.index.bytes", _I, "10485760", whole(_I, 4), "log.index.size.max.bytes",
            "Size of a segment's index." + _BOOKKEEPER),
        TopicConfig("segment.jitter.ms", _L, "0", whole(_L, 0), None,
            "Spread of the times at which segments are rolled." + _BOOKKEEPER),
        TopicConfig("segment.ms", _L, "604800000", whole(_L, 1), None,
            "Age at which a segment is rolled." + _KEPT + "Pulsar rolls its ledgers by its own settings."),
        TopicConfig("unclean.leader.election.enable", _B, "false", boolean, "unclean.leader.election.enable",
            "Whether a replica that lags may lead." + _BOOKKEEPER),
    )
}  # fmt: skip

DEFAULTS: Mapping[str, str] = {config.name: config.default for config in TOPIC_CONFIGS.values()}


def check_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """The given configurations, with values as brokers show them. Raises KafkaError INVALID_CONFIG."""
    for name, value in configs.items():
        if name not in TOPIC_CONFIGS:
            raise _invalid(f"Unknown topic config name: {name}")
        if value is None:
            raise _invalid(f"Null value not supported for topic configs: {name}")
        check_size(value)
    parsed = {name: _parsed(name, value) for name, value in configs.items() if value is not None}
    _check_together({**DEFAULTS, **parsed})
    return parsed


def check_size(value: str) -> None:
    """Raises KafkaError INVALID_CONFIG, with the text of Kafka's controller."""
    if len(value) > MAX_VALUE_LENGTH:
        raise _invalid(
            "The configuration value cannot be added because it exceeds the maximum value size of "
            f"{MAX_VALUE_LENGTH} bytes."
        )


def usable_configs(configs: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The valid stored configurations, and the names of the invalid ones: anybody may write a topic's properties."""
    usable: dict[str, str] = {}
    unusable: list[str] = []
    for name, value in configs.items():
        try:
            usable |= check_configs({name: value})
        except KafkaError:
            unusable.append(name)
    return usable, unusable


def list_parts(value: str) -> list[str]:
    """The elements of a LIST value."""
    return [part for part in value.split(",") if part]


def has_policy(configs: Mapping[str, str], policy: str) -> bool:
    """Whether ``cleanup.policy`` contains this policy."""
    return policy in list_parts(configs.get("cleanup.policy", DEFAULTS["cleanup.policy"]))


def writes_messages(configs: Mapping[str, str]) -> bool:
    """Whether each record becomes a separate Pulsar message (``entry.format=pulsar``)."""
    entry_format = configs.get(ENTRY_FORMAT, "auto")
    return has_policy(configs, "compact") if entry_format == "auto" else entry_format == "pulsar"


def _parsed(name: str, value: str) -> str:
    try:
        return TOPIC_CONFIGS[name].parse(value)
    except InvalidValue as error:
        raise _invalid(f"Invalid value {error.shown} for configuration {name}: {error}") from error


def _check_together(configs: Mapping[str, str]) -> None:
    low, high = "min.compaction.lag.ms", "max.compaction.lag.ms"
    if int(configs[low]) > int(configs[high]):
        raise _conflict(low, configs[low], ">", high, configs[high])
    if configs["remote.storage.enable"] == "true":
        raise _invalid("Topics cannot be configured with remote storage: Pulsar's tiered storage is set up in Pulsar.")
    if configs[ENTRY_FORMAT] == "kafka" and has_policy(configs, "compact"):
        raise _conflict(ENTRY_FORMAT, "kafka", "with", "cleanup.policy", configs["cleanup.policy"])


def _conflict(*parts: str) -> KafkaError:
    name, value, relation, other, other_value = parts
    return _invalid(f"conflict topic config setting {name} ({value}) {relation} {other} ({other_value})")


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, text)
