"""Requests that change one topic at the same time. Pulsar does not keep them apart."""

from __future__ import annotations

from typing import Any

from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import RawClient, connected

ROUNDS = 10
NONE, INVALID_PARTITIONS = 0, 37
LIMIT: dict[str, Any] = {"timeout_ms": 30_000}


def create(client: RawClient, topic: str) -> int:
    wanted = {"name": topic, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    [row] = client.call("CreateTopics", 5, topics=[wanted], validate_only=False, **LIMIT)["topics"]
    return int(row["error_code"])


def add(client: RawClient, topic: str, count: int) -> int:
    wanted = {"name": topic, "count": count, "assignments": None}
    return client.send("CreatePartitions", 1, topics=[wanted], validate_only=False, **LIMIT)


def added(client: RawClient, request: int) -> int:
    return int(client.receive("CreatePartitions", 1, request)["results"][0]["error_code"])


def test_partitions_are_added_twice(gateway: GatewayProcess) -> None:
    """The topic never has fewer partitions than a client was told."""
    with connected(gateway.bootstrap) as one, connected(gateway.bootstrap) as other:
        for _ in range(ROUNDS):
            topic = unique_topic("added")
            assert create(one, topic) == NONE
            more, fewer = add(one, topic, 6), add(other, topic, 4)
            assert added(one, more) == NONE
            assert added(other, fewer) in {NONE, INVALID_PARTITIONS}
            [found] = one.call("Metadata", 9, topics=[{"name": topic}])["topics"]
            assert len(found["partitions"]) == 6
            assert added(one, add(one, topic, 8)) == NONE


def test_a_topic_is_deleted_while_partitions_are_added(gateway: GatewayProcess) -> None:
    """Its name can be used again."""
    with connected(gateway.bootstrap) as one, connected(gateway.bootstrap) as other:
        for _ in range(ROUNDS):
            topic = unique_topic("deleted")
            assert create(one, topic) == NONE
            adding = add(one, topic, 6)
            other.call("DeleteTopics", 5, topic_names=[topic], **LIMIT)
            added(one, adding)
            assert create(other, topic) == NONE
