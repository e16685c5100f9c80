"""Topic configurations: names, values as Kafka 3.9.2 accepts and shows them, and defaults that pass their own checks.
"""

import pytest

from gateway.errors import KafkaError
from gateway.topics.topic_configs import (
    DEFAULTS,
    TOPIC_CONFIGS,
    TopicConfig,
    check_configs,
    has_policy,
    usable_configs,
    writes_messages,
)
from protocol.kafka.errors import ErrorCode


@pytest.mark.parametrize("config", TOPIC_CONFIGS.values(), ids=lambda config: config.name)
def test_the_default_is_a_value(config: TopicConfig) -> None:
    assert check_configs({config.name: config.default}) == {config.name: config.default}


def refusal(configs: dict[str, str | None]) -> str:
    with pytest.raises(KafkaError) as raised:
        check_configs(configs)
    assert raised.value.code == ErrorCode.INVALID_CONFIG
    return str(raised.value)


REPLICAS = "leader.replication.throttled.replicas"
FORM = (
    f"{REPLICAS} must be the literal '*' or a list of replicas in the following format: "
    "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
)


@pytest.mark.parametrize(
    ("name", "value", "shown", "reason"),
    [
        ("retention.ms", "-2", "-2", "Value must be at least -1"),
        ("retention.ms", "1_000", "1_000", "Not a number of type LONG"),
        ("retention.ms", "0x10", "0x10", "Not a number of type LONG"),
        ("retention.ms", "1e3", "1e3", "Not a number of type LONG"),
        ("retention.ms", "", "", "Not a number of type LONG"),
        ("retention.ms", "5 000", "5 000", "Not a number of type LONG"),
        ("retention.ms", str(2**63), str(2**63), "Not a number of type LONG"),
        ("retention.ms", "9" * 5_000, "9" * 5_000, "Not a number of type LONG"),
        ("segment.bytes", "13", "13", "Value must be at least 14"),
        ("max.message.bytes", str(2**31), str(2**31), "Not a number of type INT"),
        ("compression.zstd.level", "23", "23", "Value must be no more than 22"),
        ("compression.gzip.level", "0", "0", "Value must be between 1 and 9 or equal to -1"),
        ("cleanup.policy", "delete, burn", "burn", "String must be one of: compact, delete"),
        ("cleanup.policy", "compact,", "", "String must be one of: compact, delete"),
        ("cleanup.policy", "Compact", "Compact", "String must be one of: compact, delete"),
        ("message.timestamp.type", "createtime", "createtime", "String must be one of: CreateTime, LogAppendTime"),
        ("min.cleanable.dirty.ratio", "1.1", "1.1", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "5.", "5.0", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "-.1", "-0.1", "Value must be at least 0"),
        ("min.cleanable.dirty.ratio", "1e999", "1e999", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "nan", "nan", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "1_0", "1_0", "Not a number of type DOUBLE"),
        ("preallocate", "yes", "yes", "Expected value to be either true or false"),
        ("message.format.version", "9.9", "9.9", "Version 9.9 is not a valid version"),
        (REPLICAS, "0:1:2", "[0:1:2]", FORM),
        (REPLICAS, "none, 0:1", "[none, 0:1]", FORM),
    ],
)
def test_a_refused_value(name: str, value: str, shown: str, reason: str) -> None:
    assert refusal({"segment.ms": "1", name: value}) == f"Invalid value {shown} for configuration {name}: {reason}"


def test_what_is_no_configuration() -> None:
    assert refusal({"no.such.config": "1"}) == "Unknown topic config name: no.such.config"
    assert refusal({"retention.ms": None}) == "Null value not supported for topic configs: retention.ms"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("retention.ms", "-1", "-1"),
        ("retention.ms", " 7000\t", "7000"),
        ("retention.ms", "+5000", "5000"),
        ("retention.ms", "00012", "12"),
        ("retention.ms", "٣٤", "34"),
        ("retention.bytes", "-5", "-5"),
        ("max.message.bytes", str(2**31 - 1), str(2**31 - 1)),
        ("cleanup.policy", " compact , delete", "compact,delete"),
        ("cleanup.policy", "", ""),
        ("compression.type", " gzip ", "gzip"),
        ("min.cleanable.dirty.ratio", "0.25", "0.25"),
        ("min.cleanable.dirty.ratio", " .5d ", "0.5"),
        ("min.cleanable.dirty.ratio", "1e-1", "0.1"),
        ("preallocate", " TRUE ", "true"),
        ("message.format.version", "0.10.2", "0.10.2"),
        (REPLICAS, "0:1, 1:2", "0:1,1:2"),
        (REPLICAS, "*", "*"),
    ],
)
def test_a_taken_value_is_shown_as_it_was_understood(name: str, value: str, shown: str) -> None:
    assert check_configs({name: value}) == {name: shown}


def test_what_does_not_go_together() -> None:
    assert refusal({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}) == (
        "conflict topic config setting min.compaction.lag.ms (9) > max.compaction.lag.ms (8)"
    )
    assert "entry.format (kafka) with cleanup.policy (compact)" in refusal(
        {"entry.format": "kafka", "cleanup.policy": "compact"}
    )
    assert "remote storage" in refusal({"remote.storage.enable": "true"})


def test_stored_values_that_nobody_can_use_are_left_out() -> None:
    assert usable_configs({"retention.ms": "x", "no.such": "1", "segment.ms": "5"}) == (
        {"segment.ms": "5"},
        ["retention.ms", "no.such"],
    )


@pytest.mark.parametrize(
    ("configs", "messages"),
    [
        ({}, False),
        ({"entry.format": "pulsar"}, True),
        ({"cleanup.policy": "compact"}, True),
        ({"cleanup.policy": "delete,compact", "entry.format": "auto"}, True),
        ({"cleanup.policy": "delete", "entry.format": "kafka"}, False),
    ],
)
def test_which_topics_hold_a_message_for_each_record(configs: dict[str, str], messages: bool) -> None:
    assert writes_messages(configs) is messages


def test_cleanup_policies() -> None:
    assert has_policy(DEFAULTS, "delete")
    assert not has_policy({"cleanup.policy": ""}, "delete")
    assert has_policy({"cleanup.policy": "compact,delete"}, "compact")
