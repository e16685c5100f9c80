"""AlterConfigs (33), IncrementalAlterConfigs (44) and ListConfigResources (74), every version, and the result in
DescribeConfigs (32)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.conformance.conversation import LOADED_WITHIN_S, Conversation, case

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
KEYS = ["cleanup.policy", "max.message.bytes", "min.cleanable.dirty.ratio"]
KEYS += ["preallocate", "retention.ms", "segment.bytes"]

Operation = tuple[str, int, str | None]


def altered_topic(conversation: Conversation, version: int, label: str) -> str:
    return conversation.topic(f"alter-{label}-{version}", configs={"segment.bytes": "123456"})


def incremental(
    conversation: Conversation, version: int, kind: int, name: str, *operations: Operation, validate_only: bool = False
) -> None:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in operations]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    conversation.call("IncrementalAlterConfigs", version, resources=[resource], validate_only=validate_only)
    hide_node_id(conversation, kind)


def hide_node_id(conversation: Conversation, kind: int) -> None:
    """A broker is named by its id, which differs on each server."""
    if kind in {BROKER, BROKER_LOGGER}:
        [[noted]] = [answer["responses"] for answer in conversation.answers[-1].values()]
        noted["resource_name"] = bool(noted["resource_name"])


def alter(
    conversation: Conversation,
    version: int,
    kind: int,
    name: str,
    configs: dict[str, str | None],
    *,
    validate_only: bool = False,
) -> None:
    pairs = [{"name": key, "value": value} for key, value in configs.items()]
    resource = {"resource_type": kind, "resource_name": name, "configs": pairs}
    conversation.call("AlterConfigs", version, resources=[resource], validate_only=validate_only)
    hide_node_id(conversation, kind)


def describe(conversation: Conversation, topic: str, expected: dict[str, str] | None = None) -> None:
    """Compare the configurations of a topic, with Kafka after its broker has the expected ones."""
    resource = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": KEYS}
    deadline = time.monotonic() + LOADED_WITHIN_S
    while True:
        fields: dict[str, Any] = {"resources": [resource], "include_synonyms": True, "include_documentation": False}
        answer = conversation.call("DescribeConfigs", 4, **fields)
        found = {config["name"]: config["value"] for config in answer["results"][0]["configs"]}
        if (expected or {}).items() <= found.items() or time.monotonic() > deadline:
            return
        conversation.answers.pop()
        time.sleep(0.02)


@case("IncrementalAlterConfigs")
def test_set_and_delete(conversation: Conversation, version: int) -> None:
    topic = altered_topic(conversation, version, "set")
    operations = ("retention.ms", SET, " 7000 "), ("preallocate", SET, "TRUE"), ("segment.bytes", DELETE, None)
    incremental(conversation, version, TOPIC, topic, *operations)
    describe(conversation, topic, {"retention.ms": "7000", "segment.bytes": "1073741824"})
    incremental(conversation, version, TOPIC, topic, ("retention.ms", DELETE, "x"), ("no.such", DELETE, None))
    describe(conversation, topic, {"retention.ms": "604800000"})


@case("IncrementalAlterConfigs")
def test_append_and_subtract(conversation: Conversation, version: int) -> None:
    topic = altered_topic(conversation, version, "list")
    for operation, value, expected in (
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact,delete", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "zzz", "compact"),
        (SUBTRACT, "compact", ""),
        (APPEND, " delete", "delete"),
        (APPEND, "burn", "delete"),
    ):
        incremental(conversation, version, TOPIC, topic, ("cleanup.policy", operation, value))
        describe(conversation, topic, {"cleanup.policy": expected})


@case("IncrementalAlterConfigs")
@pytest.mark.parametrize(
    "operations",
    [
        [("retention.ms", SET, "soon")],
        [("retention.ms", SET, "1_000")],
        [("retention.ms", SET, "7"), ("retention.bytes", SET, "x")],
        [("retention.ms", SET, None)],
        [("retention.ms", APPEND, None)],
        [("retention.ms", APPEND, "5")],
        [("retention.ms", SUBTRACT, "5")],
        [("no.such.config", SET, "5")],
        [("no.such.config", APPEND, "5")],
        [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)],
        [("retention.ms", 9, "5")],
        [("remote.storage.enable", SET, "true")],
        [("min.compaction.lag.ms", SET, "5"), ("max.compaction.lag.ms", SET, "4")],
    ],
    ids=lambda operations: " ".join(f"{name}:{operation}:{value}" for name, operation, value in operations),
)
def test_refused_operations(conversation: Conversation, version: int, operations: list[Operation]) -> None:
    """If one operation is invalid, none is applied."""
    topic = altered_topic(conversation, 0, "refused")
    incremental(conversation, version, TOPIC, topic, *operations)
    describe(conversation, topic)


@case("IncrementalAlterConfigs")
@pytest.mark.parametrize("value", ["7000", "soon"])
@pytest.mark.parametrize("name", ["no-such-topic", "", "a b"])
def test_alter_unknown_topic(conversation: Conversation, version: int, name: str, value: str) -> None:
    full = conversation.names.prefix + name if name == "no-such-topic" else name
    incremental(conversation, version, TOPIC, full, ("retention.ms", SET, value))
    incremental(conversation, version, TOPIC, full, ("retention.ms", SET, value), validate_only=True)


@case("IncrementalAlterConfigs")
def test_incremental_validate_only(conversation: Conversation, version: int) -> None:
    topic = altered_topic(conversation, 0, "checked")
    incremental(conversation, version, TOPIC, topic, ("retention.ms", SET, "7000"), validate_only=True)
    incremental(conversation, version, TOPIC, topic, ("retention.ms", SET, "x"), validate_only=True)
    incremental(conversation, version, TOPIC, topic)
    describe(conversation, topic)


@case("IncrementalAlterConfigs")
def test_resource_twice(conversation: Conversation, version: int) -> None:
    twice, once = altered_topic(conversation, 0, "twice"), altered_topic(conversation, 0, "once")
    resources = [{"resource_type": TOPIC, "resource_name": name, "configs": []} for name in (twice, twice, once)]
    conversation.call("IncrementalAlterConfigs", version, resources=resources, validate_only=False)
    conversation.call("IncrementalAlterConfigs", version, resources=[], validate_only=False)


@case("IncrementalAlterConfigs")
@pytest.mark.parametrize("name", ["<id>", "", "999999", "x", "-1"])
def test_read_only_settings_of_a_broker(conversation: Conversation, version: int, name: str) -> None:
    full = str(conversation.node_id()) if name == "<id>" else name
    incremental(conversation, version, BROKER, full, ("num.partitions", SET, "3"))
    incremental(conversation, version, BROKER, full)
    incremental(conversation, version, BROKER, full, ("num.partitions", DELETE, None), validate_only=True)


@case("IncrementalAlterConfigs")
@pytest.mark.parametrize("name", ["<id>", "", "x"])
def test_loggers(conversation: Conversation, version: int, name: str) -> None:
    full = str(conversation.node_id()) if name == "<id>" else name
    incremental(conversation, version, BROKER_LOGGER, full, ("no.such.logger", SET, "INFO"))


@case("IncrementalAlterConfigs")
@pytest.mark.parametrize("kind", [CLIENT_METRICS, GROUP, 0, 1, 3, 99, -1])
@pytest.mark.parametrize("name", ["", "x"])
def test_incremental_other_resources(conversation: Conversation, version: int, kind: int, name: str) -> None:
    incremental(conversation, version, kind, name, ("no.such.config", SET, "1"))


@case("AlterConfigs")
def test_alter_replaces_everything(conversation: Conversation, version: int) -> None:
    topic = altered_topic(conversation, version, "replaced")
    alter(conversation, version, TOPIC, topic, {"retention.ms": "7000"})
    describe(conversation, topic, {"retention.ms": "7000", "segment.bytes": "1073741824"})
    alter(conversation, version, TOPIC, topic, {"retention.ms": "8000"}, validate_only=True)
    describe(conversation, topic)
    alter(conversation, version, TOPIC, topic, {})
    describe(conversation, topic, {"retention.ms": "604800000"})


@case("AlterConfigs")
@pytest.mark.parametrize(
    "configs",
    [
        {"retention.ms": "x"},
        {"retention.ms": None},
        {"no.such.config": "1"},
        {"retention.ms": "7", "preallocate": "yes"},
    ],
    ids=str,
)
def test_refused_configs(conversation: Conversation, version: int, configs: dict[str, str | None]) -> None:
    topic = altered_topic(conversation, 0, "refused")
    alter(conversation, version, TOPIC, topic, configs)
    describe(conversation, topic)


@case("AlterConfigs")
@pytest.mark.parametrize("name", ["no-such-topic", "", "a b"])
def test_alter_configs_of_unknown_topic(conversation: Conversation, version: int, name: str) -> None:
    full = conversation.names.prefix + name if name == "no-such-topic" else name
    alter(conversation, version, TOPIC, full, {"retention.ms": "7000"})


@case("AlterConfigs")
@pytest.mark.parametrize("name", ["<id>", "", "999999", "x"])
def test_alter_a_broker(conversation: Conversation, version: int, name: str) -> None:
    full = str(conversation.node_id()) if name == "<id>" else name
    alter(conversation, version, BROKER, full, {"num.partitions": "3"})
    alter(conversation, version, BROKER, full, {}, validate_only=True)


@case("AlterConfigs")
@pytest.mark.parametrize("kind", [BROKER_LOGGER, CLIENT_METRICS, GROUP, 0, 99])
def test_alter_other_resources(conversation: Conversation, version: int, kind: int) -> None:
    alter(conversation, version, kind, "x", {"no.such.config": "1"})


@case("DescribeConfigs")
@pytest.mark.parametrize("kind", [BROKER_LOGGER, CLIENT_METRICS, GROUP])
@pytest.mark.parametrize("name", ["", "x"])
def test_describe_other_resources(conversation: Conversation, version: int, kind: int, name: str) -> None:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    more: dict[str, Any] = {"include_synonyms": False} if version >= 1 else {}
    conversation.call("DescribeConfigs", version, resources=[resource], **more)


@case("DescribeConfigs", [4])
@pytest.mark.parametrize("kind", [GROUP, 99])
def test_a_topic_beside_an_unknown_resource(conversation: Conversation, version: int, kind: int) -> None:
    topic = altered_topic(conversation, 0, "beside")
    named = [(TOPIC, topic), (kind, "x")]
    resources = [{"resource_type": each, "resource_name": name, "configuration_keys": None} for each, name in named]
    conversation.call("DescribeConfigs", version, resources=resources, include_synonyms=False)


@case("DescribeConfigs", [4])
def test_synonyms_of_every_config(conversation: Conversation, version: int) -> None:
    topic = conversation.topic("alter-plain")
    for keys in (KEYS, ["flush.ms", "compression.type", "min.insync.replicas", "message.format.version"]):
        resource = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": keys}
        conversation.call("DescribeConfigs", version, resources=[resource], include_synonyms=True)


@case("ListConfigResources")
def test_no_client_metrics(conversation: Conversation, version: int) -> None:
    conversation.call("ListConfigResources", version)
