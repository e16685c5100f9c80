"""DescribeCluster (60), DescribeConfigs (32), InitProducerId (22) and FindCoordinator (10), every version."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.conversation import Conversation, case
from tests.conformance.requests import await_coordinator

TOPIC, BROKER, BROKER_LOGGER, GROUP, CLIENT_METRICS = 2, 4, 8, 32, 16
BROKER_CONFIG = 4
COMPARED_CONFIGS = ["cleanup.policy", "retention.ms", "max.message.bytes", "message.timestamp.type", "compression.type"]


@case("DescribeCluster")
@pytest.mark.parametrize("operations", [False, True])
def test_describe_cluster(conversation: Conversation, version: int, operations: bool) -> None:
    conversation.call("DescribeCluster", version, include_cluster_authorized_operations=operations)


@case("DescribeCluster", [1])
@pytest.mark.parametrize("endpoint", [2, 0, 3, -1])
def test_describe_other_endpoints(conversation: Conversation, version: int, endpoint: int) -> None:
    """A broker does not describe controllers."""
    conversation.call("DescribeCluster", version, include_cluster_authorized_operations=False, endpoint_type=endpoint)


def resource(kind: int, name: str, keys: list[str] | None = None) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": keys}


def describe(conversation: Conversation, version: int, *resources: dict[str, Any], **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"resources": list(resources)}
    if version >= 1:
        fields["include_synonyms"] = more.get("synonyms", False)
    if version >= 3:
        fields["include_documentation"] = more.get("documentation", False)
    return conversation.call("DescribeConfigs", version, **fields)


@case("DescribeConfigs")
def test_named_configs_of_a_topic(conversation: Conversation, version: int) -> None:
    configs = {"retention.ms": "3600000", "cleanup.policy": "compact"}
    topic = conversation.topic("configs", configs=configs)
    describe(conversation, version, resource(TOPIC, topic, COMPARED_CONFIGS))


@case("DescribeConfigs")
def test_one_config_as_set(conversation: Conversation, version: int) -> None:
    topic = conversation.topic("configs", configs={"retention.ms": "3600000", "cleanup.policy": "compact"})
    describe(conversation, version, resource(TOPIC, topic, ["retention.ms"]))


@case("DescribeConfigs")
def test_all_configs_of_a_topic(conversation: Conversation, version: int) -> None:
    """The names are compared; the values differ on each server."""
    topic = conversation.topic("configs-plain")
    answer = describe(conversation, version, resource(TOPIC, topic))
    conversation.answers.pop()
    conversation.say(sorted(config["name"] for config in answer["results"][0]["configs"]))


@case("DescribeConfigs")
def test_no_configs_of_a_topic(conversation: Conversation, version: int) -> None:
    """An empty list of keys means the same as null, in v0 as in v1 to v4."""
    topic = conversation.topic("configs-plain")
    answer = describe(conversation, version, resource(TOPIC, topic, []))
    conversation.answers.pop()
    conversation.say(bool(answer["results"][0]["configs"]))


@case("DescribeConfigs")
@pytest.mark.parametrize("key", ["no.such.config", ""])
def test_unknown_config(conversation: Conversation, version: int, key: str) -> None:
    describe(conversation, version, resource(TOPIC, conversation.topic("configs-plain"), [key]))


@case("DescribeConfigs")
@pytest.mark.parametrize("name", ["no-such-topic", "", "a b"])
def test_unknown_topic(conversation: Conversation, version: int, name: str) -> None:
    full = conversation.names.prefix + name if name == "no-such-topic" else name
    describe(conversation, version, resource(TOPIC, full))


@case("DescribeConfigs", range(1, 5))
def test_synonyms(conversation: Conversation, version: int) -> None:
    topic = conversation.topic("configs", configs={"retention.ms": "3600000", "cleanup.policy": "compact"})
    answer = describe(conversation, version, resource(TOPIC, topic, ["retention.ms"]), synonyms=True)
    conversation.answers.pop()
    first = answer["results"][0]["configs"][0]["synonyms"][0]
    conversation.say(first)


@case("DescribeConfigs", [3, 4])
def test_documentation(conversation: Conversation, version: int) -> None:
    topic = conversation.topic("configs-plain")
    answer = describe(conversation, version, resource(TOPIC, topic, ["retention.ms"]), documentation=True)
    conversation.answers.pop()
    conversation.say(bool(answer["results"][0]["configs"][0]["documentation"]))


@case("DescribeConfigs")
def test_broker(conversation: Conversation, version: int) -> None:
    """The broker's own settings differ; those that clients use must exist."""
    keys = ["auto.create.topics.enable", "num.partitions"]
    answer = describe(conversation, version, resource(BROKER, str(conversation.node_id()), keys))
    conversation.answers.pop()
    result = answer["results"][0]
    conversation.say((result["error_code"], sorted(config["name"] for config in result["configs"])))


@case("DescribeConfigs")
@pytest.mark.parametrize("name", ["999999", "x", "-1", "1_0", " 1"])
def test_unknown_broker(conversation: Conversation, version: int, name: str) -> None:
    describe(conversation, version, resource(BROKER, name))


@case("DescribeConfigs")
@pytest.mark.parametrize("kind", [0, 1, 3, 99, -1])
def test_unknown_resource_type(conversation: Conversation, version: int, kind: int) -> None:
    describe(conversation, version, resource(kind, "x"))


@case("DescribeConfigs")
def test_no_resources(conversation: Conversation, version: int) -> None:
    describe(conversation, version)


@case("DescribeConfigs")
def test_resource_named_twice(conversation: Conversation, version: int) -> None:
    one = resource(TOPIC, conversation.topic("configs", configs={}), ["retention.ms"])
    describe(conversation, version, one, one)


@case("InitProducerId")
def test_idempotent_producer(conversation: Conversation, version: int) -> None:
    """Each call gives another id, with epoch 0."""
    given = [conversation.when_loaded("InitProducerId", version, **producer(version))["producer_id"] for _ in range(2)]
    conversation.say(len(set(given)))


def producer(version: int, **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"transactional_id": None, "transaction_timeout_ms": 60_000}
    if version >= 3:
        fields |= {"producer_id": -1, "producer_epoch": -1}
    return fields | more


@case("InitProducerId")
@pytest.mark.parametrize("timeout_ms", [0, -1, 2**31 - 1])
def test_timeout_means_nothing_without_a_transaction(conversation: Conversation, version: int, timeout_ms: int) -> None:
    conversation.when_loaded("InitProducerId", version, **producer(version, transaction_timeout_ms=timeout_ms))


@case("InitProducerId", [3, 4, 5])
@pytest.mark.parametrize("identity", [(5, 3), (-1, 3), (5, -1), (-2, -2)], ids=str)
def test_identity_without_a_transaction(conversation: Conversation, version: int, identity: tuple[int, int]) -> None:
    producer_id, epoch = identity
    fields = producer(version, producer_id=producer_id, producer_epoch=epoch)
    conversation.when_loaded("InitProducerId", version, **fields)


@case("InitProducerId")
def test_empty_transactional_id(conversation: Conversation, version: int) -> None:
    conversation.when_loaded("InitProducerId", version, **producer(version, transactional_id=""))


@case("InitProducerId")
def test_transactional_id(conversation: Conversation, version: int) -> None:
    transactional_id = f"{conversation.names.prefix}tx-{version}"
    await_coordinator(conversation, transactional_id)
    conversation.when_loaded("InitProducerId", version, **producer(version, transactional_id=transactional_id))


@case("FindCoordinator")
@pytest.mark.parametrize("kind", [0, 1])
def test_find_coordinator(conversation: Conversation, version: int, kind: int) -> None:
    keys = [conversation.names.prefix + "group"]
    conversation.when_loaded("FindCoordinator", version, **coordinator(version, keys, kind))


def coordinator(version: int, keys: list[str], kind: int = 0) -> dict[str, Any]:
    fields: dict[str, Any] = {"coordinator_keys": keys} if version >= 4 else {"key": keys[0]}
    return fields | ({"key_type": kind} if version >= 1 else {})


@case("FindCoordinator", [4, 5, 6])
def test_find_several_coordinators(conversation: Conversation, version: int) -> None:
    keys = [conversation.names.prefix + name for name in ("a", "b")]
    conversation.when_loaded("FindCoordinator", version, **coordinator(version, [*keys, keys[0]]))
    conversation.when_loaded("FindCoordinator", version, **coordinator(version, []))


@case("FindCoordinator", range(1, 7))
@pytest.mark.parametrize("kind", [2, 3, -1])
def test_find_unknown_kind(conversation: Conversation, version: int, kind: int) -> None:
    conversation.call("FindCoordinator", version, **coordinator(version, ["x"], kind))


@case("FindCoordinator")
def test_find_empty_group(conversation: Conversation, version: int) -> None:
    conversation.when_loaded("FindCoordinator", version, **coordinator(version, [""]))
