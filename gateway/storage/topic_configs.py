"""Kafka's topic configurations: which there are, their defaults, and what a value must look like.

Those that Pulsar can act on are mapped to its policies in topics.py; the others are kept and returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from gateway.storage.errors import KafkaError
from protocol.kafka.errors import ErrorCode

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


class ConfigType(IntEnum):
    """DescribeConfigs v3+ (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class TopicConfig:
    name: str
    kind: ConfigType
    default: str
    check: Callable[[str], bool]


def _whole(low: int, high: int) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            return low <= int(value) <= high
        except ValueError:
            return False

    return check


def _ratio(value: str) -> bool:
    try:
        return 0 <= float(value) <= 1
    except ValueError:
        return False


def _one_of(*allowed: str) -> Callable[[str], bool]:
    return lambda value: value in allowed


def _cleanup_policy(value: str) -> bool:
    return all(part.strip() in {"delete", "compact"} for part in value.split(","))


def _boolean(value: str) -> bool:
    return value.strip().lower() in {"true", "false"}


def _anything(value: str) -> bool:
    return True


_B, _S, _I, _L, _D, _LIST = (
    ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST,
)  # fmt: skip

TOPIC_CONFIGS: Mapping[str, TopicConfig] = {
    config.name: config
    for config in (
        TopicConfig("cleanup.policy", _LIST, "delete", _cleanup_policy),
        TopicConfig("compression.gzip.level", _I, "-1", _whole(-1, 9)),
        TopicConfig("compression.lz4.level", _I, "9", _whole(1, 17)),
        TopicConfig(
            "compression.type", _S, "producer", _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
        ),
        TopicConfig("compression.zstd.level", _I, "3", _whole(-131072, 22)),
        TopicConfig("delete.retention.ms", _L, "86400000", _whole(0, LONG_MAX)),
        TopicConfig("file.delete.delay.ms", _L, "60000", _whole(0, LONG_MAX)),
        TopicConfig("flush.messages", _L, str(LONG_MAX), _whole(1, LONG_MAX)),
        TopicConfig("flush.ms", _L, str(LONG_MAX), _whole(0, LONG_MAX)),
        TopicConfig("follower.replication.throttled.replicas", _LIST, "", _anything),
        TopicConfig("index.interval.bytes", _I, "4096", _whole(0, INT_MAX)),
        TopicConfig("leader.replication.throttled.replicas", _LIST, "", _anything),
        TopicConfig("local.retention.bytes", _L, "-2", _whole(-2, LONG_MAX)),
        TopicConfig("local.retention.ms", _L, "-2", _whole(-2, LONG_MAX)),
        TopicConfig("max.compaction.lag.ms", _L, str(LONG_MAX), _whole(1, LONG_MAX)),
        TopicConfig("max.message.bytes", _I, "1048588", _whole(0, INT_MAX)),
        TopicConfig("message.downconversion.enable", _B, "true", _boolean),
        TopicConfig("message.format.version", _S, "3.0-IV1", _anything),
        TopicConfig("message.timestamp.after.max.ms", _L, str(LONG_MAX), _whole(0, LONG_MAX)),
        TopicConfig("message.timestamp.before.max.ms", _L, str(LONG_MAX), _whole(0, LONG_MAX)),
        TopicConfig("message.timestamp.difference.max.ms", _L, str(LONG_MAX), _whole(0, LONG_MAX)),
        TopicConfig("message.timestamp.type", _S, "CreateTime", _one_of("CreateTime", "LogAppendTime")),
        TopicConfig("min.cleanable.dirty.ratio", _D, "0.5", _ratio),
        TopicConfig("min.compaction.lag.ms", _L, "0", _whole(0, LONG_MAX)),
        TopicConfig("min.insync.replicas", _I, "1", _whole(1, INT_MAX)),
        TopicConfig("preallocate", _B, "false", _boolean),
        TopicConfig("remote.storage.enable", _B, "false", _one_of("false")),
        TopicConfig("retention.bytes", _L, "-1", _whole(-1, LONG_MAX)),
        TopicConfig("retention.ms", _L, "604800000", _whole(-1, LONG_MAX)),
        TopicConfig("segment.bytes", _I, "1073741824", _whole(14, INT_MAX)),
        TopicConfig("segment.index.bytes", _I, "10485760", _whole(4, INT_MAX)),
        TopicConfig("segment.jitter.ms", _L, "0", _whole(0, LONG_MAX)),
        TopicConfig("segment.ms", _L, "604800000", _whole(1, LONG_MAX)),
        TopicConfig("unclean.leader.election.enable", _B, "false", _boolean),
    )
}


def check_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """The given configurations, checked. Raises KafkaError INVALID_CONFIG for an unknown name or a bad value."""
    for name, value in configs.items():
        known = TOPIC_CONFIGS.get(name)
        if known is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
        if value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}")
        if not known.check(value):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {name}")
    return {name: value for name, value in configs.items() if value is not None}
