"""What is wrong with a request, and what its client may not do: which of both is answered; see acls.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.conformance.acls import (
    ACTION,
    ALTER_CONFIGS,
    CREATE,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    acl,
    create,
    denied_group,
    denied_transaction,
    name_of,
    two_topics,
    where_denied,
    without_acls,
)
from tests.conformance.conversation import Conversation, Pair, case
from tests.conformance.records import batch, records
from tests.conformance.requests import await_coordinator, produce_fields

SET = 0
TRANSACTIONAL = 16
TOPIC_TYPE, BROKER_TYPE, LOGGER_TYPE = 2, 4, 8


@pytest.fixture
def pair(pair_with_acls: Pair) -> Pair:
    return pair_with_acls


@contextmanager
def hidden_topic(conversation: Conversation, kind: str) -> Iterator[str]:
    _, denied = two_topics(conversation, kind)
    try:
        yield denied
    finally:
        without_acls(conversation, denied)


def altered(kind: int, name: str, *configs: str | None, operation: int | None = None) -> dict[str, Any]:
    more = {} if operation is None else {"config_operation": operation}
    rows = [{"name": "retention.ms", "value": value} | more for value in configs]
    return {"resource_type": kind, "resource_name": name, "configs": rows}


@case("AlterConfigs")
def test_alter_configs(conversation: Conversation, version: int) -> None:
    with hidden_topic(conversation, "wrong-alter") as topic, where_denied(conversation, ALTER_CONFIGS):
        for wrong in (
            [altered(TOPIC_TYPE, topic, "1", "2")], [altered(TOPIC_TYPE, topic, None)], [altered(TOPIC_TYPE, "", "1")],
            [altered(BROKER_TYPE, "77", "1")], [altered(BROKER_TYPE, "x", "1")], [altered(LOGGER_TYPE, "77", "1")],
            [altered(BROKER_TYPE, "", "1"), altered(TOPIC_TYPE, topic, "1")],
        ):  # fmt: skip
            conversation.call("AlterConfigs", version, resources=wrong, validate_only=True)


@case("IncrementalAlterConfigs")
def test_incremental_alter_configs(conversation: Conversation, version: int) -> None:
    def one(kind: int, name: str, *configs: str | None) -> dict[str, Any]:
        return altered(kind, name, *configs, operation=SET)

    with hidden_topic(conversation, "wrong-incremental") as topic, where_denied(conversation, ALTER_CONFIGS):
        for wrong in (
            [one(TOPIC_TYPE, topic, "1"), one(TOPIC_TYPE, topic, "1"), one(BROKER_TYPE, "", "1")],
            [one(TOPIC_TYPE, topic, "1", "2")], [one(TOPIC_TYPE, topic, None)], [one(TOPIC_TYPE, "", "1")],
            [one(BROKER_TYPE, "77", "1")], [one(BROKER_TYPE, "x", "1")], [one(LOGGER_TYPE, "77", "1")],
        ):  # fmt: skip
            conversation.call("IncrementalAlterConfigs", version, resources=wrong, validate_only=True)


@case("DescribeConfigs")
def test_describe_configs_of_an_unknown_type(conversation: Conversation, version: int) -> None:
    with hidden_topic(conversation, "wrong-type") as topic, where_denied(conversation, DESCRIBE_CONFIGS):
        rows = [
            {"resource_type": kind, "resource_name": name, "configuration_keys": None}
            for kind, name in ((TOPIC_TYPE, topic), (LOGGER_TYPE, "7"), (99, "x"))
        ]
        conversation.call("DescribeConfigs", version, resources=rows)


@case("DeleteTopics")
def test_delete_topics(conversation: Conversation, version: int) -> None:
    """Who may describe a topic learns that there is none."""
    names = [name_of(conversation, kind) for kind in ("described", "hidden", "deletable")]
    described, hidden, deletable = names
    create(conversation, acl(described, DESCRIBE), acl(hidden, CREATE), acl(deletable, DELETE))
    with where_denied(conversation, DELETE):
        if version < 6:
            conversation.call("DeleteTopics", version, topic_names=names, timeout_ms=10_000)
        else:
            rows = [{"name": name} for name in names]
            conversation.call("DeleteTopics", version, topics=rows, timeout_ms=10_000)
    for name in names:
        without_acls(conversation, name)


@case("DeleteTopics", [6])
def test_delete_a_topic_that_may_not_be_described(conversation: Conversation, version: int) -> None:
    """Only by its id."""
    label = f"undescribed-{version}"
    topic = conversation.topic(label)
    topic_id = conversation.topic_id(label)
    create(conversation, acl(topic, DELETE), acl(topic, DESCRIBE, DENY))
    with where_denied(conversation, DELETE):
        for row in ({"name": topic}, {"name": None, "topic_id": topic_id}):
            conversation.call("DeleteTopics", version, topics=[row], timeout_ms=10_000)
    without_acls(conversation, topic)


@case("Metadata")
def test_names_that_are_denied_twice(conversation: Conversation, version: int) -> None:
    more: dict[str, Any] = {"allow_auto_topic_creation": False} if version >= 4 else {}
    with hidden_topic(conversation, "twice") as topic:
        conversation.call("Metadata", version, topics=[{"name": topic}] * 2, **more)


@case("DescribeTopicPartitions")
def test_pages_that_are_denied_twice(conversation: Conversation, version: int) -> None:
    with hidden_topic(conversation, "pages-twice") as topic:
        conversation.call(
            "DescribeTopicPartitions", version, topics=[{"name": topic}] * 2, response_partition_limit=9, cursor=None
        )


@case("DeleteGroups")
def test_groups_that_are_denied_twice(conversation: Conversation, version: int) -> None:
    groups = [denied_group(conversation)] * 2 + [denied_group(conversation, DELETE)] * 2
    conversation.when_loaded("DeleteGroups", version, groups_names=groups)


@case("OffsetDelete")
def test_offset_delete_in_no_group(conversation: Conversation, version: int) -> None:
    """What the coordinator says of the group comes first."""
    group = denied_group(conversation, DELETE)
    conversation.when_loaded("DeleteGroups", 0, groups_names=[group])
    partitions = [{"partition_index": 0}]
    with hidden_topic(conversation, "no-group") as denied:
        allowed = conversation.names.prefix + "no-group-allowed"
        for names in ([denied], [denied, allowed]):
            topics = [{"name": name, "partitions": partitions} for name in names]
            conversation.when_loaded("OffsetDelete", version, group_id=group, topics=topics)


@case("AddPartitionsToTxn", range(4, 6))
def test_a_broker_that_may_not_describe_the_cluster(conversation: Conversation, version: int) -> None:
    """ClusterAction is enough."""
    transactional_id = name_of(conversation, "asked")
    await_coordinator(conversation, transactional_id)
    asked = {
        "transactional_id": transactional_id, "producer_id": 987_654_321, "producer_epoch": 0,
        "verify_only": True, "topics": [{"name": conversation.topic("asked"), "partitions": [0]}],
    }  # fmt: skip
    with where_denied(conversation, DESCRIBE):
        conversation.when_loaded("AddPartitionsToTxn", version, transactions=[asked])
    with where_denied(conversation, ACTION):
        conversation.call("AddPartitionsToTxn", version, transactions=[asked])


@case("Produce", range(3, 12))
def test_produce(conversation: Conversation, version: int) -> None:
    """A transactional id counts for transactional batches only, and these need one."""
    plain, transactional = batch(records(1)), batch(records(1), attributes=TRANSACTIONAL, producer=(987_654_321, 0, 0))
    transactional_id = denied_transaction(conversation)
    with hidden_topic(conversation, "wrong-produce") as denied:
        allowed = conversation.topic("wrong-produce-allowed")
        for data, given in ((plain, transactional_id), (transactional, transactional_id), (transactional, None)):
            fields = produce_fields(version, {denied: {0: data}, allowed: {0: data}}, transactional_id=given)
            conversation.call("Produce", version, **fields)
