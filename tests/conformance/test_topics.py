"""CreateTopics (19), DeleteTopics (20) and CreatePartitions (37), every version."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from tests.conformance.conversation import READY_WITHIN_S, Conversation, case

ILLEGAL_NAMES = ["", ".", "..", "a b", "a/b", "ä", "x" * 250, "a:b"]
Assigned = list[tuple[int, list[int | None]]]
NODE = None  # stands for the id of the server's only node


def wanted(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
    configs = [{"name": key, "value": value} for key, value in more.pop("configs", {}).items()]
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas, "configs": configs} | more


def create(conversation: Conversation, version: int, *topics: dict[str, Any], validate_only: bool = False) -> None:
    """Compare the answer. The effective configs are not compared: each server has its own."""
    more = {"validate_only": validate_only} if version >= 1 else {}
    answer = conversation.call("CreateTopics", version, topics=list(topics), timeout_ms=15_000, **more)
    for noted in conversation.answers[-1]["CreateTopics"]["topics"]:
        if version >= 5:
            noted["configs"] = bool(noted["configs"])
        if noted.get("topic_id") == "<unknown id>":
            noted["topic_id"] = "<new id>"
    for topic in answer["topics"]:
        if not topic["error_code"] and not validate_only:
            await_topic(conversation, topic["name"])


def await_topic(conversation: Conversation, name: str, *, present: bool = True) -> None:
    """Until metadata shows the topic, or no longer does."""
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        error = conversation.client.call("Metadata", 5, **asked)["topics"][0]["error_code"]
        if (error == 0) == present and error in (0, 3):
            return
        time.sleep(0.01)
    raise AssertionError(f"{name} did not become {'present' if present else 'absent'}")


def layout(conversation: Conversation, name: str) -> None:
    """Compare what metadata says about a topic of this run."""
    conversation.call("Metadata", 5, topics=[{"name": name}], allow_auto_topic_creation=False)


def assigned_to(conversation: Conversation, assigned: Assigned) -> list[dict[str, Any]]:
    return [{"partition_index": index, "broker_ids": nodes_of(conversation, nodes)} for index, nodes in assigned]


def nodes_of(conversation: Conversation, nodes: list[int | None]) -> list[int]:
    return [conversation.node_id() if node is NODE else node for node in nodes]


def new_name(conversation: Conversation, version: int, label: str) -> str:
    return f"{conversation.names.prefix}create-{label}-{version}"


@case("CreateTopics")
def test_create(conversation: Conversation, version: int) -> None:
    name = new_name(conversation, version, "plain")
    create(conversation, version, wanted(name, 3))
    layout(conversation, name)


@case("CreateTopics")
def test_create_with_defaults(conversation: Conversation, version: int) -> None:
    """-1 partitions and replicas: the server's own numbers, from v4 on."""
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


def delete(conversation: Conversation, version: int, *topics: str | uuid.UUID) -> None:
    if version >= 6:
        states = [{"name": topic} if isinstance(topic, str) else {"name": None, "topic_id": topic} for topic in topics]
        fields: dict[str, Any] = {"topics": states}
    else:
        fields = {"topic_names": list(topics)}
    conversation.call("DeleteTopics", version, timeout_ms=15_000, **fields)


def fresh_topic(conversation: Conversation, version: int, label: str) -> str:
    return conversation.topic(f"delete-{label}-{version}")


@case("DeleteTopics")
def test_delete(conversation: Conversation, version: int) -> None:
    """Asked again at once, the topic is unknown; and it may be created again."""
    name = fresh_topic(conversation, version, "plain")
    conversation.topic_id(name.removeprefix(conversation.names.prefix))
    delete(conversation, version, name)
    await_topic(conversation, name, present=False)
    delete(conversation, version, name)
    create(conversation, 4, wanted(name))


@case("DeleteTopics")
@pytest.mark.parametrize("name", ["no-such-topic", "", ".", "a b"])
def test_delete_unknown(conversation: Conversation, version: int, name: str) -> None:
    delete(conversation, version, conversation.names.prefix + name if name == "no-such-topic" else name)


@case("DeleteTopics")
def test_delete_twice_in_one_request(conversation: Conversation, version: int) -> None:
    name = fresh_topic(conversation, version, "twice")
    conversation.topic_id(name.removeprefix(conversation.names.prefix))
    delete(conversation, version, name, name)


@case("DeleteTopics")
def test_delete_known_and_unknown(conversation: Conversation, version: int) -> None:
    name = fresh_topic(conversation, version, "mixed")
    conversation.topic_id(name.removeprefix(conversation.names.prefix))
    delete(conversation, version, name, conversation.names.prefix + "no-such-topic")


@case("DeleteTopics")
def test_delete_nothing(conversation: Conversation, version: int) -> None:
    delete(conversation, version)


@case("DeleteTopics", [6])
def test_delete_by_id(conversation: Conversation, version: int) -> None:
    name = fresh_topic(conversation, version, "by-id")
    topic_id = conversation.topic_id(name.removeprefix(conversation.names.prefix))
    delete(conversation, version, topic_id)
    await_topic(conversation, name, present=False)
    delete(conversation, version, topic_id)


@case("DeleteTopics", [6])
def test_delete_by_odd_ids(conversation: Conversation, version: int) -> None:
    delete(conversation, version, uuid.UUID(int=0))
    delete(conversation, version, uuid.UUID(int=77))
    state = {"name": conversation.names.prefix + "no-such-topic", "topic_id": uuid.UUID(int=77)}
    conversation.call("DeleteTopics", version, topics=[state], timeout_ms=15_000)


@case("DeleteTopics", [6])
def test_delete_by_name_and_id(conversation: Conversation, version: int) -> None:
    name = fresh_topic(conversation, version, "both")
    topic_id = conversation.topic_id(name.removeprefix(conversation.names.prefix))
    for topics in ([{"name": name, "topic_id": topic_id}], [{"name": name}, {"name": None, "topic_id": topic_id}]):
        conversation.call("DeleteTopics", version, topics=topics, timeout_ms=15_000)
    layout(conversation, name)


def grow(
    conversation: Conversation,
    version: int,
    *topics: tuple[str, int, list[list[int | None]] | None],
    validate_only: bool = False,
) -> bool:
    """Compare the answer, and say whether all went well."""
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
    """Compare the partition count once it is the expected one, or when waiting is over."""
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
