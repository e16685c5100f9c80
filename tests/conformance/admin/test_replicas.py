"""Requests about replicas and their leaders: OffsetForLeaderEpoch (23), DescribeLogDirs (35), ElectLeaders (43),
AlterPartitionReassignments (45), ListPartitionReassignments (46), DescribeProducers (61), every version."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.conversation import Conversation, case
from tests.conformance.fetching import filled
from tests.conformance.records import batch, records
from tests.conformance.requests import produce_fields

UNKNOWN_NAMES = ["no-such-topic", "", ".", "a b"]
NODE = None  # stands for the id of the server's only node


def full_name(conversation: Conversation, name: str) -> str:
    return conversation.names.prefix + name if name == "no-such-topic" else name


# OffsetForLeaderEpoch


def epoch_end(
    conversation: Conversation,
    version: int,
    *asked: tuple[str, list[tuple[int, int]]],
    current: int = -1,
    replica: int = -1,
) -> None:
    more = {"current_leader_epoch": current} if version >= 2 else {}
    topics = [
        {"topic": name, "partitions": [{"partition": index, "leader_epoch": epoch} | more for index, epoch in parts]}
        for name, parts in asked
    ]
    fields: dict[str, Any] = {"topics": topics} | ({"replica_id": replica} if version >= 3 else {})
    conversation.call("OffsetForLeaderEpoch", version, **fields)


@case("OffsetForLeaderEpoch")
@pytest.mark.parametrize("epoch", [0, 1, 5, 2**31 - 1, -1, -2, -(2**31)])
def test_end_of_epoch(conversation: Conversation, version: int, epoch: int) -> None:
    """For a partition with records, and for an empty one."""
    epoch_end(conversation, version, (filled(conversation), [(0, epoch), (1, epoch)]))


@case("OffsetForLeaderEpoch", [2, 3, 4])
@pytest.mark.parametrize("current", [0, 1, -2])
def test_current_epoch(conversation: Conversation, version: int, current: int) -> None:
    epoch_end(conversation, version, (filled(conversation), [(0, 0), (1, 1)]), current=current)


@case("OffsetForLeaderEpoch", [3, 4])
@pytest.mark.parametrize("replica", [-2, 0, 77])
def test_end_of_epoch_for_a_replica(conversation: Conversation, version: int, replica: int) -> None:
    epoch_end(conversation, version, (filled(conversation), [(0, 0)]), replica=replica)


@case("OffsetForLeaderEpoch")
@pytest.mark.parametrize("name", UNKNOWN_NAMES)
def test_end_of_epoch_of_unknown_topics(conversation: Conversation, version: int, name: str) -> None:
    epoch_end(conversation, version, (full_name(conversation, name), [(0, 0)]), (filled(conversation), [(2, 0)]))


@case("OffsetForLeaderEpoch")
def test_end_of_epoch_named_twice(conversation: Conversation, version: int) -> None:
    topic = filled(conversation)
    epoch_end(conversation, version, (topic, [(0, 0), (0, 1)]))
    epoch_end(conversation, version, (topic, []))
    epoch_end(conversation, version)


# DescribeProducers


def producers(conversation: Conversation, version: int, *asked: tuple[str, list[int]]) -> None:
    topics = [{"name": name, "partition_indexes": indexes} for name, indexes in asked]
    answer = conversation.call("DescribeProducers", version, topics=topics)
    conversation.say(sum(len(part["active_producers"]) for topic in answer["topics"] for part in topic["partitions"]))


@case("DescribeProducers")
def test_producers_of_a_partition(conversation: Conversation, version: int) -> None:
    """Each idempotent producer with its last sequence and the maximal timestamp of its last batch."""
    topic = conversation.topic("producers", partitions=2)
    given = conversation.client.call("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=1000)
    for epoch, sequence, count in ((0, 0, 3), (0, 3, 4), (1, 0, 2)):
        data = batch(records(count), producer=(given["producer_id"], epoch, sequence))
        conversation.call("Produce", 9, **produce_fields(9, {topic: {0: data}}))
        producers(conversation, version, (topic, [0, 1]))
    conversation.call("Produce", 9, **produce_fields(9, {topic: {1: batch(records(2))}}))
    producers(conversation, version, (topic, [1]))


@case("DescribeProducers")
@pytest.mark.parametrize("name", UNKNOWN_NAMES)
def test_producers_of_unknown_topics(conversation: Conversation, version: int, name: str) -> None:
    producers(conversation, version, (full_name(conversation, name), [0]), (filled(conversation), [2, -1, 1]))


@case("DescribeProducers")
def test_producers_named_twice(conversation: Conversation, version: int) -> None:
    topic = filled(conversation)
    producers(conversation, version, (topic, [0, 0]))
    producers(conversation, version, (topic, [0]), (topic, [1]))
    producers(conversation, version, (topic, []))
    producers(conversation, version)


# DescribeLogDirs


def log_dirs(conversation: Conversation, version: int, *asked: tuple[str, list[int]]) -> None:
    """The directories and their sizes are different on each server."""
    topics = [{"topic": name, "partitions": indexes} for name, indexes in asked]
    conversation.call("DescribeLogDirs", version, topics=topics)
    for noted in conversation.answers[-1]["DescribeLogDirs"]["results"]:
        noted["log_dir"] = bool(noted["log_dir"])
        for name in ("total_bytes", "usable_bytes"):
            noted.pop(name, None)
        for part in (part for topic in noted["topics"] for part in topic["partitions"]):
            part["partition_size"] = part["partition_size"] > 0


@case("DescribeLogDirs")
def test_sizes(conversation: Conversation, version: int) -> None:
    topic = filled(conversation)
    log_dirs(conversation, version, (topic, [0]))
    log_dirs(conversation, version, (topic, [1, 0]))


@case("DescribeLogDirs")
def test_sizes_of_all_topics(conversation: Conversation, version: int) -> None:
    topic = filled(conversation)
    answer = conversation.client.call("DescribeLogDirs", version, topics=None)
    found = [row for result in answer["results"] for row in result["topics"] if row["name"] == topic]
    conversation.say([sorted(part["partition_index"] for part in row["partitions"]) for row in found])


@case("DescribeLogDirs")
@pytest.mark.parametrize("name", UNKNOWN_NAMES)
def test_sizes_of_unknown_topics(conversation: Conversation, version: int, name: str) -> None:
    topic = filled(conversation)
    log_dirs(conversation, version, (full_name(conversation, name), [0]))
    log_dirs(conversation, version, (topic, [0, 2, -1]), (full_name(conversation, name), [0]))


@case("DescribeLogDirs")
def test_sizes_named_twice(conversation: Conversation, version: int) -> None:
    topic = filled(conversation)
    log_dirs(conversation, version, (topic, [0, 0]))
    log_dirs(conversation, version, (topic, [0]), (topic, [1]))
    log_dirs(conversation, version, (topic, []))
    log_dirs(conversation, version)


# ElectLeaders


def elect(conversation: Conversation, version: int, asked: list[tuple[str, list[int]]] | None, kind: int = 0) -> None:
    topics = None if asked is None else [{"topic": name, "partitions": indexes} for name, indexes in asked]
    more = {"election_type": kind} if version >= 1 else {}
    conversation.call("ElectLeaders", version, topic_partitions=topics, timeout_ms=10_000, **more)


@case("ElectLeaders")
@pytest.mark.parametrize("kind", [0, 1, 2, -1])
def test_election(conversation: Conversation, version: int, kind: int) -> None:
    topic = filled(conversation)
    elect(conversation, version, [(topic, [0, 1])], kind)
    elect(conversation, version, [], kind)
    elect(conversation, version, None, kind)
    noted = conversation.answers[-1]["ElectLeaders"]  # the response has all topics of the server; compare one
    rows = noted["replica_election_results"]
    noted["replica_election_results"] = [
        row for row in rows if row["topic"] == topic.replace(conversation.names.prefix, "<run>")
    ]


@case("ElectLeaders")
@pytest.mark.parametrize("name", UNKNOWN_NAMES)
def test_election_of_unknown_topics(conversation: Conversation, version: int, name: str) -> None:
    for kind in (0, 1):
        asked = [(full_name(conversation, name), [0]), (filled(conversation), [0, 2, -1])]
        elect(conversation, version, asked, kind)


@case("ElectLeaders")
def test_election_named_twice(conversation: Conversation, version: int) -> None:
    topic = filled(conversation)
    elect(conversation, version, [(topic, [0, 0])])
    elect(conversation, version, [(topic, [0]), (topic, [1])])
    elect(conversation, version, [(topic, [])])


# AlterPartitionReassignments and ListPartitionReassignments

Replicas = list[int | None] | None


def reassign(
    conversation: Conversation, version: int, *asked: tuple[str, list[tuple[int, Replicas]]], **more: Any
) -> None:
    topics = [
        {
            "name": name,
            "partitions": [
                {"partition_index": index, "replicas": replicas and placed(conversation, replicas)}
                for index, replicas in parts
            ],
        }
        for name, parts in asked
    ]
    conversation.call("AlterPartitionReassignments", version, topics=topics, timeout_ms=10_000, **more)


def placed(conversation: Conversation, replicas: list[int | None]) -> list[int]:
    return [conversation.node_id() if node is NODE else node for node in replicas]


@case("AlterPartitionReassignments")
@pytest.mark.parametrize("replicas", [None, [], [NODE], [NODE, NODE], [99], [NODE, 99], [-1], [-2, NODE]], ids=str)
def test_reassignment(conversation: Conversation, version: int, replicas: Replicas) -> None:
    topic = filled(conversation)
    reassign(conversation, version, (topic, [(0, replicas), (1, [NODE])]))
    reassign(conversation, version, (topic, [(0, replicas), (2, replicas), (-1, None)]))


@case("AlterPartitionReassignments")
@pytest.mark.parametrize("name", UNKNOWN_NAMES)
def test_reassignment_of_unknown_topics(conversation: Conversation, version: int, name: str) -> None:
    full = full_name(conversation, name)
    reassign(conversation, version, (full, [(0, [NODE])]), (filled(conversation), [(0, None)]))
    reassign(conversation, version, (full, [(0, None)]))


@case("AlterPartitionReassignments")
def test_reassignment_named_twice(conversation: Conversation, version: int) -> None:
    topic = filled(conversation)
    reassign(conversation, version, (topic, [(0, [NODE]), (0, None)]))
    reassign(conversation, version, (topic, [(0, [NODE])]), (topic, [(1, None)]))
    reassign(conversation, version, (topic, []))
    reassign(conversation, version)


@case("ListPartitionReassignments")
@pytest.mark.parametrize("indexes", [[0], [0, 1, 2, -1], []], ids=str)
def test_reassignments_under_way(conversation: Conversation, version: int, indexes: list[int]) -> None:
    for name in (filled(conversation), full_name(conversation, "no-such-topic"), "a b", ""):
        asked = [{"name": name, "partition_indexes": indexes}]
        conversation.call("ListPartitionReassignments", version, topics=asked, timeout_ms=10_000)


@case("ListPartitionReassignments")
@pytest.mark.parametrize("topics", [None, []], ids=str)
def test_all_reassignments(conversation: Conversation, version: int, topics: list[Any] | None) -> None:
    conversation.call("ListPartitionReassignments", version, topics=topics, timeout_ms=10_000)
