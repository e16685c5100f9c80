"""Odd values in requests of topics and of the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.conversation import Conversation, Pair, case
from tests.conformance.fetching import filled
from tests.conformance.odd_values import Fields, Odd, check
from tests.conformance.topics import layout, wanted

TOPIC, APPEND, TIMEOUT_MS = 2, 2, 15_000
TOO_MANY_FOR_KAFKA = ("*.count = 2147483647",)
"""Kafka runs out of memory, and ends."""
ALL_TOPICS = ("topics = None", "topics = []", "topic_partitions = None")
CHANGES = ("validate_only = False",)
UNKNOWN_OPERATIONS = ("*.config_operation = -*", "*.config_operation = 127")
"""Kafka's controller fails, and is out of service until it is elected again."""


def topic_of(conversation: Conversation) -> str:
    return filled(conversation, name="odd-topics")


def asking(conversation: Conversation) -> Fields:
    return {
        "topics": [{"name": topic_of(conversation)}], "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    }  # fmt: skip


def describing(conversation: Conversation) -> Fields:
    topic = topic_of(conversation)
    return {"topics": [{"name": topic}], "response_partition_limit": 2000, "cursor": None}


def creating(conversation: Conversation) -> Fields:
    new = wanted(conversation.names.prefix + "new", configs={"retention.ms": "1000"})
    return {"topics": [new], "timeout_ms": TIMEOUT_MS, "validate_only": True}


def assigning(conversation: Conversation) -> Fields:
    assigned = [{"partition_index": 0, "broker_ids": [conversation.node_id()]}]
    new = wanted(conversation.names.prefix + "new", -1, -1, assignments=assigned)
    return {"topics": [new], "timeout_ms": TIMEOUT_MS, "validate_only": True}


def hide_new(answer: dict[str, Any]) -> None:
    """Each server has its own configurations."""
    for topic in answer["topics"]:
        topic["configs"], topic["topic_id"] = bool(topic["configs"]), topic["topic_id"] is not None


def deleting(conversation: Conversation) -> Fields:
    return {"topics": [{"name": conversation.names.prefix + "nothing"}], "timeout_ms": TIMEOUT_MS}


def growing(conversation: Conversation) -> Fields:
    asked = {"name": topic_of(conversation), "count": 3, "assignments": None}
    return {"topics": [asked], "timeout_ms": TIMEOUT_MS, "validate_only": True}


def electing(conversation: Conversation) -> Fields:
    asked = [{"topic": topic_of(conversation), "partitions": [0]}]
    return {"election_type": 0, "topic_partitions": asked, "timeout_ms": TIMEOUT_MS}


def reassigning(conversation: Conversation) -> Fields:
    part = {"partition_index": 0, "replicas": [conversation.node_id()]}
    return {"topics": [{"name": topic_of(conversation), "partitions": [part]}], "timeout_ms": TIMEOUT_MS}


def reassigned(conversation: Conversation) -> Fields:
    return {"topics": [{"name": topic_of(conversation), "partition_indexes": [0]}], "timeout_ms": TIMEOUT_MS}


def reading_configs(conversation: Conversation) -> Fields:
    topic, keys = topic_of(conversation), ["retention.ms", "cleanup.policy"]
    return {"resources": [{"resource_type": TOPIC, "resource_name": topic, "configuration_keys": keys}]}


def changing_configs(conversation: Conversation) -> Fields:
    return changing(conversation, {"name": "retention.ms", "config_operation": 0, "value": "-1"})


def changing_a_list(conversation: Conversation) -> Fields:
    return changing(conversation, {"name": "cleanup.policy", "config_operation": APPEND, "value": "delete"})


def changing(conversation: Conversation, config: Fields) -> Fields:
    resource = {"resource_type": TOPIC, "resource_name": topic_of(conversation), "configs": [config]}
    return {"resources": [resource], "validate_only": True}


def sizes(conversation: Conversation) -> Fields:
    return {"topics": [{"topic": topic_of(conversation), "partitions": [0]}]}


def hide_sizes(answer: dict[str, Any]) -> None:
    for row in answer["results"]:
        row["log_dir"], row["total_bytes"], row["usable_bytes"] = "", 0, 0
        for topic in row["topics"]:
            for part in topic["partitions"]:
                part["partition_size"] = 0


ODD = {
    "Metadata": Odd("Metadata", 12, asking, (*ALL_TOPICS, "allow_auto_topic_creation = *")),
    "DescribeTopicPartitions": Odd("DescribeTopicPartitions", 0, describing, ALL_TOPICS),
    "CreateTopics": Odd("CreateTopics", 7, creating, CHANGES, tidy=hide_new),
    "CreateTopics-assigned": Odd("CreateTopics", 7, assigning, (*CHANGES, "*.broker_ids.0 = *"), tidy=hide_new),
    "DeleteTopics": Odd("DeleteTopics", 6, deleting),
    "CreatePartitions": Odd("CreatePartitions", 3, growing, (*CHANGES, *TOO_MANY_FOR_KAFKA)),
    "ElectLeaders": Odd("ElectLeaders", 2, electing, ALL_TOPICS),
    "AlterPartitionReassignments": Odd(
        "AlterPartitionReassignments", 0, reassigning, (*ALL_TOPICS, "*.replicas.0 = *")
    ),
    "ListPartitionReassignments": Odd("ListPartitionReassignments", 0, reassigned),
    "DescribeConfigs": Odd(
        "DescribeConfigs", 4, reading_configs, ("*.configuration_keys = None", "*.configuration_keys = []", "incl*")
    ),
    "IncrementalAlterConfigs": Odd("IncrementalAlterConfigs", 1, changing_configs, (*CHANGES, *UNKNOWN_OPERATIONS)),
    "IncrementalAlterConfigs-list": Odd(
        "IncrementalAlterConfigs", 1, changing_a_list, (*CHANGES, *UNKNOWN_OPERATIONS, "*.config_operation = 0")
    ),
    "AlterConfigs": Odd("AlterConfigs", 2, changing_configs, (*CHANGES, "resources = 'twice'")),
    "DescribeLogDirs": Odd("DescribeLogDirs", 4, sizes, ALL_TOPICS, tidy=hide_sizes),
    "DescribeCluster": Odd("DescribeCluster", 1, lambda _: {}),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_values(pair: Pair, request: pytest.FixtureRequest, name: str) -> None:
    check(pair, request, ODD[name])


@case("CreateTopics", [0, 4, 7])
@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_timeout_that_is_over(conversation: Conversation, version: int, timeout_ms: int) -> None:
    """Nothing is done, whatever else is wrong with the request."""
    topic, new = topic_of(conversation), conversation.names.prefix + "never-made"
    known, twice = [{"name": topic}], [wanted(new), wanted(new + "-twice"), wanted(new + "-twice")]
    names = {"topics": known} if version >= 6 else {"topic_names": [topic]}
    conversation.call("CreateTopics", version, topics=[wanted(new)], timeout_ms=timeout_ms)
    conversation.call("CreateTopics", version, topics=[*twice, wanted(topic), wanted("a b")], timeout_ms=timeout_ms)
    conversation.call("CreateTopics", version, topics=[], timeout_ms=timeout_ms)
    conversation.call("CreateTopics", version, topics=twice[1:], timeout_ms=timeout_ms)
    conversation.call("DeleteTopics", min(version, 6), **names, timeout_ms=timeout_ms)
    grown = [{"name": name, "count": 5, "assignments": None} for name in (topic, new)]
    for asked in (grown, grown[:1] * 2, []):
        conversation.call("CreatePartitions", min(version, 3), topics=asked, timeout_ms=timeout_ms)
    elected, more = [{"topic": topic, "partitions": [0, 7]}], {"election_type": 9} if version else {}
    for partitions in (elected, None, []):
        conversation.call("ElectLeaders", min(version, 2), topic_partitions=partitions, timeout_ms=timeout_ms, **more)
    rows = [{"name": topic, "partitions": [{"partition_index": 0, "replicas": None}]}]
    conversation.call("AlterPartitionReassignments", 0, topics=rows, timeout_ms=timeout_ms)
    layout(conversation, topic)
    layout(conversation, new)
