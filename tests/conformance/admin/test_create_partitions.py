"""CreatePartitions (37), every version."""

from __future__ import annotations

import time

import pytest

from tests.conformance.conversation import READY_WITHIN_S, Conversation, case
from tests.conformance.topics import NODE, nodes_of


def grow(
    conversation: Conversation,
    version: int,
    *topics: tuple[str, int, list[list[int | None]] | None],
    validate_only: bool = False,
) -> bool:
    """Compare the response, and return whether all succeeded."""
    asked = [
        {
            "name": name,
            "count": count,
            "assignments": None
            if assigned is None
            else [{"broker_ids": nodes_of(conversation, nodes)} for nodes in assigned],
        }
        for name, count, assigned in topics
    ]
    fields = {"topics": asked, "timeout_ms": 15_000, "validate_only": validate_only}
    answer = conversation.call("CreatePartitions", version, **fields)
    return not any(result["error_code"] for result in answer["results"])


def count_partitions(conversation: Conversation, name: str, expected: int) -> None:
    """Compare the partition count when it is the expected one, or after the wait."""
    deadline = time.monotonic() + READY_WITHIN_S
    found = -1
    while found != expected and time.monotonic() < deadline:
        answer = conversation.client.call("Metadata", 5, topics=[{"name": name}], allow_auto_topic_creation=False)
        found = len(answer["topics"][0]["partitions"])
    conversation.say({"partitions": found})


@case("CreatePartitions")
def test_grow(conversation: Conversation, version: int) -> None:
    name = conversation.topic(f"grow-{version}", partitions=2)
    if grow(conversation, version, (name, 4, None)):
        count_partitions(conversation, name, 4)


@case("CreatePartitions")
def test_grow_validate_only(conversation: Conversation, version: int) -> None:
    name = conversation.topic("grow-checked", partitions=2)
    grow(conversation, version, (name, 4, None), validate_only=True)
    count_partitions(conversation, name, 2)


@case("CreatePartitions")
@pytest.mark.parametrize("count", [2, 1, 0, -1, -(2**31)])
def test_grow_to_no_more(conversation: Conversation, version: int, count: int) -> None:
    name = conversation.topic("grow-never", partitions=2)
    grow(conversation, version, (name, count, None))


@case("CreatePartitions")
@pytest.mark.parametrize("name", ["no-such-topic", "", "a b"])
def test_grow_unknown(conversation: Conversation, version: int, name: str) -> None:
    grow(conversation, version, (conversation.names.prefix + name if name == "no-such-topic" else name, 3, None))


@case("CreatePartitions")
def test_grow_with_assignment(conversation: Conversation, version: int) -> None:
    name = conversation.topic(f"grow-assigned-{version}", partitions=1)
    if grow(conversation, version, (name, 3, [[NODE], [NODE]])):
        count_partitions(conversation, name, 3)


@case("CreatePartitions")
@pytest.mark.parametrize("assigned", [[], [[NODE]], [[NODE], [NODE], [NODE]], [[NODE], [99]], [[NODE], []]], ids=str)
def test_grow_with_bad_assignment(conversation: Conversation, version: int, assigned: list[list[int | None]]) -> None:
    name = conversation.topic("grow-badly", partitions=1)
    grow(conversation, version, (name, 3, assigned), validate_only=True)


@case("CreatePartitions")
def test_grow_with_two_faults(conversation: Conversation, version: int) -> None:
    name = conversation.topic("grow-faults", partitions=2)
    faults: list[tuple[int, list[list[int | None]]]] = [
        (2, []), (2, [[NODE]]), (1, [[NODE]]), (4, [[NODE], [NODE, NODE]]),
    ]  # fmt: skip
    for count, assigned in faults:
        grow(conversation, version, (name, count, assigned), (f"{name}-none", 3, [[NODE]]), validate_only=True)


@case("CreatePartitions")
def test_grow_twice_in_one_request(conversation: Conversation, version: int) -> None:
    name = conversation.topic("grow-twice", partitions=1)
    other = conversation.topic("grow-once", partitions=1)
    grow(conversation, version, (name, 3, None), (name, 4, None), (other, 2, None), validate_only=True)


@case("CreatePartitions")
def test_grow_nothing(conversation: Conversation, version: int) -> None:
    grow(conversation, version)


@case("CreatePartitions")
@pytest.mark.parametrize("count", [9_999 + 3, 20_000])
def test_too_many_with_a_wrong_number_of_assignments(conversation: Conversation, version: int, count: int) -> None:
    name = conversation.topic("grow-badly", partitions=1)
    grow(conversation, version, (name, count, [[NODE]]), validate_only=True)


@case("CreatePartitions")
def test_no_more_partitions_of_an_internal_topic(conversation: Conversation, version: int) -> None:
    conversation.when_loaded("FindCoordinator", 0, key="group")
    grow(conversation, version, ("__consumer_offsets", 0, None), validate_only=True)


@case("CreatePartitions")
@pytest.mark.parametrize(
    "counts", [[10_001], [10_002], [5001, 5001], [5001, 5002, 2], [20_000, 1, 2], [0, 10_001]], ids=str
)
def test_grow_by_very_many(conversation: Conversation, version: int, counts: list[int]) -> None:
    """Once the partitions of a request are more than 10,000, its later topics are refused, too."""
    names = [conversation.topic(f"grow-by-many-{number}") for number in range(len(counts))]
    topics = [(name, count, None) for name, count in zip(names, counts, strict=True)]
    grow(conversation, version, *topics, validate_only=True)
