"""CreateTopics (19), every version."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.conversation import Conversation, case
from tests.conformance.topics import NODE, create, layout, nodes_of, wanted

ILLEGAL_NAMES = ["", ".", "..", "a b", "a/b", "ä", "x" * 250, "a:b"]
Assigned = list[tuple[int, list[int | None]]]


def assigned_to(conversation: Conversation, assigned: Assigned) -> list[dict[str, Any]]:
    return [{"partition_index": index, "broker_ids": nodes_of(conversation, nodes)} for index, nodes in assigned]


def new_name(conversation: Conversation, version: int, label: str) -> str:
    return f"{conversation.names.prefix}create-{label}-{version}"


@case("CreateTopics")
def test_create(conversation: Conversation, version: int) -> None:
    name = new_name(conversation, version, "plain")
    create(conversation, version, wanted(name, 3))
    layout(conversation, name)


@case("CreateTopics")
def test_create_with_defaults(conversation: Conversation, version: int) -> None:
    """-1 partitions and replicas: the server's defaults, from v4."""
    create(conversation, version, wanted(new_name(conversation, version, "default"), -1, -1))


@case("CreateTopics", range(1, 8))
def test_validate_only(conversation: Conversation, version: int) -> None:
    name = new_name(conversation, version, "validated")
    create(conversation, version, wanted(name, 2), validate_only=True)
    layout(conversation, name)


@case("CreateTopics")
def test_existing_topic(conversation: Conversation, version: int) -> None:
    name = conversation.topic("create-existing")
    create(conversation, version, wanted(name))
    if version >= 1:
        create(conversation, version, wanted(name), validate_only=True)


@case("CreateTopics")
@pytest.mark.parametrize("name", ILLEGAL_NAMES, ids=lambda name: repr(name[:9]))
def test_illegal_name(conversation: Conversation, version: int, name: str) -> None:
    create(conversation, version, wanted(name))


@case("CreateTopics")
def test_name_of_the_metadata_log(conversation: Conversation, version: int) -> None:
    create(conversation, version, wanted("__cluster_metadata"))
    create(conversation, version, wanted("__cluster_metadata", 0, configs={"no.such.config": "1"}), wanted("a b"))


@case("CreateTopics", [0, 4, 7])
@pytest.mark.parametrize("endings", ["a.b a_b", "c_d c.d"])
def test_names_that_collide(conversation: Conversation, version: int, endings: str) -> None:
    """A dot and an underscore are one character in metric names."""
    for part in endings.split():
        create(conversation, version, wanted(f"{new_name(conversation, version, 'collide')}-{part}"))


@case("CreateTopics")
@pytest.mark.parametrize("partitions", [0, -2, -(2**31)])
def test_bad_partition_count(conversation: Conversation, version: int, partitions: int) -> None:
    create(conversation, version, wanted(new_name(conversation, version, "count"), partitions))


@case("CreateTopics")
@pytest.mark.parametrize("replicas", [0, -2])
def test_bad_replication_factor(conversation: Conversation, version: int, replicas: int) -> None:
    create(conversation, version, wanted(new_name(conversation, version, "replicas"), 1, replicas))


@case("CreateTopics")
def test_same_topic_twice_in_one_request(conversation: Conversation, version: int) -> None:
    name = new_name(conversation, version, "twice")
    other = new_name(conversation, version, "once")
    create(conversation, version, wanted(name), wanted(name, 2), wanted(other))
    layout(conversation, name)


@case("CreateTopics")
def test_good_and_bad_in_one_request(conversation: Conversation, version: int) -> None:
    good = new_name(conversation, version, "good")
    create(conversation, version, wanted(good), wanted("a b"), wanted(new_name(conversation, version, "bad"), 0))
    layout(conversation, good)


@case("CreateTopics")
def test_known_configs(conversation: Conversation, version: int) -> None:
    configs = {"retention.ms": "3600000", "cleanup.policy": "compact", "max.message.bytes": "5000"}
    create(conversation, version, wanted(new_name(conversation, version, "configs"), configs=configs))


@case("CreateTopics")
@pytest.mark.parametrize(
    "config",
    [
        ("no.such.config", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("retention.ms", ""),
        ("cleanup.policy", "burn"),
        ("compression.type", "rar"),
        ("max.message.bytes", "-1"),
        ("message.timestamp.type", "Whenever"),
        ("retention.ms", None),
    ],
    ids=str,
)
def test_bad_config(conversation: Conversation, version: int, config: tuple[str, str | None]) -> None:
    create(conversation, version, wanted(new_name(conversation, version, "config"), configs=dict([config])))


@case("CreateTopics")
def test_assignment(conversation: Conversation, version: int) -> None:
    name = new_name(conversation, version, "assigned")
    create(
        conversation, version, wanted(name, -1, -1, assignments=assigned_to(conversation, [(0, [NODE]), (1, [NODE])]))
    )
    layout(conversation, name)


@case("CreateTopics")
@pytest.mark.parametrize("counts", [(2, -1), (-1, 1)], ids=str)
def test_assignment_with_counts(conversation: Conversation, version: int, counts: tuple[int, int]) -> None:
    name = new_name(conversation, version, "counted")
    create(conversation, version, wanted(name, *counts, assignments=assigned_to(conversation, [(0, [NODE])])))


@case("CreateTopics")
@pytest.mark.parametrize(
    "assigned",
    [
        [(0, [NODE]), (2, [NODE])],
        [(1, [NODE])],
        [(0, [NODE]), (0, [NODE])],
        [(0, [99])],
        [(0, [])],
        [(0, [NODE, NODE])],
    ],
    ids=["hole", "from-one", "partition-twice", "unknown-node", "nobody", "node-twice"],
)
def test_bad_assignment(conversation: Conversation, version: int, assigned: Assigned) -> None:
    name = new_name(conversation, version, "misassigned")
    create(conversation, version, wanted(name, -1, -1, assignments=assigned_to(conversation, assigned)))


@case("CreateTopics", [1, 5, 7])
@pytest.mark.parametrize(
    "more",
    [
        {"partitions": 0, "configs": {"no.such.config": "1"}},
        {"partitions": 0, "replicas": 0},
        {"replicas": -2, "configs": {"retention.ms": "soon"}},
        {"partitions": 10_001},
        {"replicas": 2},
    ],
    ids=str,
)
def test_which_fault_is_named(conversation: Conversation, version: int, more: dict[str, Any]) -> None:
    create(conversation, version, wanted(new_name(conversation, version, "faults"), **more), validate_only=True)


@case("CreateTopics", [1, 5, 7])
def test_existing_topic_with_other_faults(conversation: Conversation, version: int) -> None:
    name = conversation.topic("create-existing")
    create(conversation, version, wanted(name, 0), validate_only=True)
    create(conversation, version, wanted(name, configs={"no.such.config": "1"}), validate_only=True)
    create(conversation, version, wanted("a b", 0), validate_only=True)
    create(conversation, version, wanted(name), wanted(name, 0), wanted("a b"), wanted("a b"), validate_only=True)


@case("CreateTopics", [0, 4, 7])
def test_names_that_collide_within_one_request(conversation: Conversation, version: int) -> None:
    name = new_name(conversation, version, "collide-at-once")
    create(conversation, version, wanted(f"{name}.a"), wanted(f"{name}_a"))


@case("CreateTopics", [1, 5, 7])
@pytest.mark.parametrize("twice", [("5", "6"), ("5", "soon")], ids=str)
def test_config_named_twice(conversation: Conversation, version: int, twice: tuple[str, str]) -> None:
    asked = wanted(new_name(conversation, version, "config-twice"))
    asked["configs"] = [{"name": "retention.ms", "value": value} for value in twice]
    create(conversation, version, asked, validate_only=True)


@case("CreateTopics", [1, 7])
@pytest.mark.parametrize("name", ["x" * 249, "...", "_", "-", "-partition-0", "a-partition-0"], ids=lambda it: it[:9])
def test_unusual_name(conversation: Conversation, version: int, name: str) -> None:
    create(conversation, version, wanted(name), validate_only=True)


@case("CreateTopics")
def test_create_nothing(conversation: Conversation, version: int) -> None:
    create(conversation, version)


def several(conversation: Conversation, version: int, counts: list[int], **more: Any) -> list[dict[str, Any]]:
    names = [new_name(conversation, version, f"several-{number}") for number in range(len(counts))]
    return [wanted(name, count, **more) for name, count in zip(names, counts, strict=True)]


@case("CreateTopics", [1, 5, 7])
@pytest.mark.parametrize(
    "counts",
    [[5000, 5000], [4999, 4999], [4999, 5000], [9998, 1], [10_000], [10_000, 0], [0, 9999], [-1, 9997], [-1, 9998]],
    ids=str,
)
def test_many_partitions(conversation: Conversation, version: int, counts: list[int]) -> None:
    """A request of more than 10,000 partitions, or whose topics need more than 10,000 records, creates nothing."""
    create(conversation, version, *several(conversation, version, counts), validate_only=True)


@case("CreateTopics", [1, 5, 7])
@pytest.mark.parametrize("counts", [[4998, 4998], [4998, 4999]], ids=str)
def test_many_partitions_and_configs(conversation: Conversation, version: int, counts: list[int]) -> None:
    topics = several(conversation, version, counts, configs={"retention.ms": "5"})
    create(conversation, version, *topics, validate_only=True)


@case("CreateTopics", [1, 5, 7])
@pytest.mark.parametrize(
    "fault", [{"name": "a b"}, {"replication_factor": 0}, {"configs": [{"name": "no.such", "value": "1"}]}], ids=str
)
def test_many_partitions_of_an_invalid_topic(conversation: Conversation, version: int, fault: dict[str, Any]) -> None:
    for count in (9999, 20_000):
        bad, good = several(conversation, version, [count, 1])
        create(conversation, version, bad | fault, good, validate_only=True)


@case("CreateTopics", [1, 5, 7])
def test_many_partitions_of_a_topic_named_twice(conversation: Conversation, version: int) -> None:
    twice, *others = several(conversation, version, [20_000, 5000, 5000])
    create(conversation, version, twice, twice, *others, validate_only=True)
    create(conversation, version, twice, twice, others[0], validate_only=True)
