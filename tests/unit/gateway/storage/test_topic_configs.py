"""Topic configurations: names, values, and defaults that pass their own checks."""

import pytest

from gateway.storage.errors import KafkaError
from gateway.storage.topic_configs import TOPIC_CONFIGS, TopicConfig, check_configs
from protocol.kafka.errors import ErrorCode


@pytest.mark.parametrize("config", TOPIC_CONFIGS.values(), ids=lambda config: config.name)
def test_the_default_is_a_value(config: TopicConfig) -> None:
    assert check_configs({config.name: config.default}) == {config.name: config.default}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "a day"),
        ("retention.ms", ""),
        ("retention.ms", str(2**63)),
        ("max.message.bytes", str(2**31)),
        ("cleanup.policy", "shred"),
        ("compression.type", "GZIP"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("preallocate", "yes"),
        ("message.timestamp.type", "createtime"),
        ("retention.ms", None),
        ("no.such.config", "1"),
    ],
)
def test_refused(name: str, value: str | None) -> None:
    with pytest.raises(KafkaError) as raised:
        check_configs({"segment.ms": "1", name: value})
    assert raised.value.code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("cleanup.policy", "compact,delete"),
        ("min.cleanable.dirty.ratio", "0.25"),
        ("preallocate", "TRUE"),
        ("max.message.bytes", str(2**31 - 1)),
    ],
)
def test_taken(name: str, value: str) -> None:
    assert check_configs({name: value}) == {name: value}
