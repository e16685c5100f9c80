"""The group APIs, every version: JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14), OffsetCommit (8),
OffsetFetch (9), OffsetDelete (47), DescribeGroups (15), ListGroups (16), DeleteGroups (42).
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.conformance.conversation import Conversation, case

NOBODY = "nobody"
METADATA = b"\x00\x01\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff\x00\x00\x00\x00"
ASSIGNMENT = b"\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff"
JOIN_LAST, SYNC_LAST, LEAVE_LAST, COMMIT_LAST, FETCH_LAST = 9, 5, 5, 9, 9


def new_group(conversation: Conversation) -> str:
    """A group of this case only, whose coordinator is ready."""
    group = f"{conversation.names.prefix}{uuid.uuid4()}"
    conversation.when_loaded("FindCoordinator", 0, key=group)
    conversation.when_loaded("OffsetFetch", 5, group_id=group, topics=[])
    del conversation.answers[-2:]
    return group


def join(conversation: Conversation, version: int, group: str, member_id: str = "", **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": METADATA}],
    }
    if version >= 1:
        fields["rebalance_timeout_ms"] = 60_000
    if version >= 5:
        fields["group_instance_id"] = None
    if version >= 8:
        fields["reason"] = "because"
    return conversation.call("JoinGroup", version, **(fields | more))


def sync(conversation: Conversation, version: int, group: str, member_id: str, generation: int, **more: Any) -> Any:
    fields: dict[str, Any] = {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "assignments": [{"member_id": member_id, "assignment": ASSIGNMENT}],
    }
    if version >= 3:
        fields["group_instance_id"] = None
    if version >= 5:
        fields |= {"protocol_type": "consumer", "protocol_name": "range"}
    return conversation.call("SyncGroup", version, **(fields | more))


def heartbeat(conversation: Conversation, version: int, group: str, member_id: str, generation: int) -> Any:
    more = {"group_instance_id": None} if version >= 3 else {}
    fields = {"group_id": group, "generation_id": generation, "member_id": member_id, **more}
    return conversation.call("Heartbeat", version, **fields)


def leave(conversation: Conversation, version: int, group: str, *member_ids: str) -> Any:
    if version < 3:
        return conversation.call("LeaveGroup", version, group_id=group, member_id=member_ids[0])
    reason = {"reason": "done"} if version >= 5 else {}
    members = [{"member_id": each, "group_instance_id": None, **reason} for each in member_ids]
    return conversation.call("LeaveGroup", version, group_id=group, members=members)


def commit(
    conversation: Conversation, version: int, group: str, topic: str, partition: int = 0, **more: Any
) -> dict[str, Any]:
    row: dict[str, Any] = {"partition_index": partition, "committed_offset": 5, "committed_metadata": "m"}
    if version == 1:
        row["commit_timestamp"] = -1
    if version >= 6:
        row["committed_leader_epoch"] = 0
    fields: dict[str, Any] = {"group_id": group, "topics": [{"name": topic, "partitions": [row]}]}
    if version >= 1:
        fields |= {"generation_id_or_member_epoch": -1, "member_id": ""}
    if 2 <= version <= 4:
        fields["retention_time_ms"] = -1
    if version >= 7:
        fields["group_instance_id"] = None
    return conversation.call("OffsetCommit", version, **(fields | more))


def fetch(conversation: Conversation, version: int, group: str, topics: list[str] | None) -> dict[str, Any]:
    rows = None if topics is None else [{"name": topic, "partition_indexes": [0, 7]} for topic in topics]
    stable = {"require_stable": False} if version >= 7 else {}
    if version < 8:
        return conversation.call("OffsetFetch", version, group_id=group, topics=rows, **stable)
    member = {"member_id": None, "member_epoch": -1} if version >= 9 else {}
    return conversation.call("OffsetFetch", version, groups=[{"group_id": group, "topics": rows, **member}], **stable)


def describe(conversation: Conversation, version: int, *groups: str) -> dict[str, Any]:
    operations = {"include_authorized_operations": True} if version >= 3 else {}
    return conversation.call("DescribeGroups", version, groups=list(groups), **operations)


@case("JoinGroup")
def test_life_of_a_member(conversation: Conversation, version: int) -> None:
    group, topic = new_group(conversation), conversation.topic("groups")
    joined = join(conversation, version, group)
    if version >= 4:
        joined = join(conversation, version, group, joined["member_id"])
    member, generation = joined["member_id"], joined["generation_id"]
    heartbeat(conversation, min(version, 4), group, member, generation)
    sync(conversation, min(version, SYNC_LAST), group, member, generation)
    heartbeat(conversation, min(version, 4), group, member, generation)
    heartbeat(conversation, min(version, 4), group, member, generation + 1)
    describe(conversation, min(version, 5), group)
    own = {"generation_id_or_member_epoch": generation, "member_id": member}
    commit(conversation, max(version, 2), group, topic, **own)
    commit(conversation, max(version, 2), group, topic, **(own | {"generation_id_or_member_epoch": generation + 1}))
    commit(conversation, max(version, 2), group, topic)
    conversation.call("DeleteGroups", min(version, 2), groups_names=[group])
    leave(conversation, min(version, LEAVE_LAST), group, member)
    describe(conversation, min(version, 5), group)
    conversation.call("DeleteGroups", min(version, 2), groups_names=[group])
    describe(conversation, min(version, 5), group)


@case("JoinGroup")
@pytest.mark.parametrize(
    "fields",
    [
        {"group_id": ""},
        {"session_timeout_ms": 1},
        {"session_timeout_ms": 10_000_000},
        {"member_id": NOBODY},
        {"protocols": []},
        {"protocol_type": ""},
    ],
    ids=["no-group", "short-session", "long-session", "unknown-member", "no-protocols", "no-type"],
)
def test_refused_join(conversation: Conversation, version: int, fields: dict[str, Any]) -> None:
    group = new_group(conversation)
    join(conversation, version, fields.get("group_id", group), **{k: v for k, v in fields.items() if k != "group_id"})


@case("JoinGroup", range(5, 10))
def test_static_member_comes_back(conversation: Conversation, version: int) -> None:
    group = new_group(conversation)
    joined = join(conversation, version, group, group_instance_id="static")
    member = joined["member_id"]
    sync(conversation, 3, group, member, joined["generation_id"], group_instance_id="static")
    again = join(conversation, version, group, group_instance_id="static")
    heartbeat(conversation, 3, group, member, joined["generation_id"])
    describe(conversation, 5, group)
    leave(conversation, 3, group, again["member_id"])


@case("SyncGroup")
def test_sync_of_an_unknown_member(conversation: Conversation, version: int) -> None:
    group = new_group(conversation)
    sync(conversation, version, group, NOBODY, 1)
    sync(conversation, version, "", NOBODY, 1)
    if version >= 5:
        sync(conversation, version, group, NOBODY, 1, protocol_name=None)


@case("Heartbeat")
def test_heartbeat_of_an_unknown_member(conversation: Conversation, version: int) -> None:
    heartbeat(conversation, version, new_group(conversation), NOBODY, 1)
    heartbeat(conversation, version, "", NOBODY, 1)


@case("LeaveGroup")
def test_leave_of_an_unknown_member(conversation: Conversation, version: int) -> None:
    leave(conversation, version, new_group(conversation), NOBODY)
    leave(conversation, version, "", NOBODY)
    if version >= 3:
        leave(conversation, version, new_group(conversation))
        leave(conversation, version, new_group(conversation), NOBODY, "other")


@case("OffsetCommit")
def test_commit_of_a_simple_consumer(conversation: Conversation, version: int) -> None:
    group, topic = new_group(conversation), conversation.topic("groups")
    commit(conversation, version, group, topic)
    for fetch_version in (1, 5, FETCH_LAST):
        fetch(conversation, fetch_version, group, [topic])
    fetch(conversation, FETCH_LAST, group, None)


@case("OffsetCommit")
def test_refused_commit(conversation: Conversation, version: int) -> None:
    group, topic = new_group(conversation), conversation.topic("groups")
    commit(conversation, version, group, topic, partition=99)
    commit(conversation, version, group, topic, partition=-1)
    commit(conversation, version, group, conversation.names.prefix + "no-such-topic")
    if version >= 1:
        commit(conversation, version, group, topic, generation_id_or_member_epoch=1, member_id=NOBODY)
        commit(conversation, version, group, topic, member_id=NOBODY)
    fetch(conversation, FETCH_LAST, group, None)


@case("OffsetCommit", [2, 6, 9])
@pytest.mark.parametrize("metadata", [None, "", "m" * 4096, "m" * 4097, "é" * 4096])
def test_metadata(conversation: Conversation, version: int, metadata: str | None) -> None:
    group, topic = new_group(conversation), conversation.topic("groups")
    row: dict[str, Any] = {"partition_index": 0, "committed_offset": 5, "committed_metadata": metadata}
    if version >= 6:
        row["committed_leader_epoch"] = -1
    commit(conversation, version, group, topic, topics=[{"name": topic, "partitions": [row]}])
    fetch(conversation, 5, group, [topic])


@case("OffsetFetch")
def test_fetch(conversation: Conversation, version: int) -> None:
    group, topic = new_group(conversation), conversation.topic("groups")
    fetch(conversation, version, group, [topic])
    commit(conversation, 2, group, topic)
    fetch(conversation, version, group, [topic, conversation.names.prefix + "no-such-topic"])
    fetch(conversation, version, group, [])
    if version >= 2:
        fetch(conversation, version, group, None)
    fetch(conversation, version, "", [topic])


@case("OffsetFetch", range(8, FETCH_LAST + 1))
@pytest.mark.parametrize("asked", [None, [], [0], [0, 7]], ids=str)
def test_fetch_a_group_again_and_again(conversation: Conversation, version: int, asked: list[int] | None) -> None:
    group, topic = new_group(conversation), conversation.topic("groups")
    commit(conversation, 2, group, topic)
    topics = None if asked is None else [{"name": topic, "partition_indexes": asked}]
    member = {"member_id": None, "member_epoch": -1} if version >= 9 else {}
    rows = [{"group_id": each, "topics": topics, **member} for each in [group] * 30 + ["none"] * 12]
    conversation.call("OffsetFetch", version, groups=rows, require_stable=False)


@case("OffsetDelete")
def test_delete_offsets(conversation: Conversation, version: int) -> None:
    group, topic = new_group(conversation), conversation.topic("groups")
    rows = [
        {"name": name, "partitions": [{"partition_index": 0}, {"partition_index": 7}]}
        for name in (topic, conversation.names.prefix + "no-such-topic")
    ]
    conversation.call("OffsetDelete", version, group_id=group, topics=rows)
    commit(conversation, 2, group, topic)
    conversation.call("OffsetDelete", version, group_id=group, topics=rows)
    fetch(conversation, FETCH_LAST, group, None)
    describe(conversation, 5, group)
    conversation.call("DeleteGroups", 2, groups_names=[group])
    conversation.call("OffsetDelete", version, group_id="", topics=rows)


@case("DescribeGroups")
def test_describe(conversation: Conversation, version: int) -> None:
    group, topic = new_group(conversation), conversation.topic("groups")
    describe(conversation, version, group, "")
    commit(conversation, 2, group, topic)
    describe(conversation, version, group, group)
    describe(conversation, version)


@case("ListGroups")
@pytest.mark.parametrize("states", [[], ["Empty"], ["empty", "Stable"], ["Stable"], ["Nonsense"]])
def test_list(conversation: Conversation, version: int, states: list[str]) -> None:
    """Only the group of this case is compared."""
    group, topic = new_group(conversation), conversation.topic("groups")
    commit(conversation, 2, group, topic)
    filters: dict[str, Any] = {"states_filter": states} if version >= 4 else {}
    if version >= 5:
        filters["types_filter"] = ["classic"]
    answer = conversation.call("ListGroups", version, **filters)
    conversation.answers.pop()
    conversation.say([answer["error_code"], *(row for row in answer["groups"] if row["group_id"] == group)])
    conversation.answers[-1] = [
        {**row, "group_id": ""} if isinstance(row, dict) else row for row in conversation.answers[-1]
    ]


@case("DeleteGroups")
def test_delete_groups(conversation: Conversation, version: int) -> None:
    group, topic = new_group(conversation), conversation.topic("groups")
    commit(conversation, 2, group, topic)
    conversation.call(
        "DeleteGroups", version, groups_names=[group, group, conversation.names.prefix + "no-such-group", ""]
    )
    fetch(conversation, FETCH_LAST, group, None)
    conversation.call("DeleteGroups", version, groups_names=[])


def odd_rows(conversation: Conversation) -> list[tuple[str, list[int]]]:
    """Topics that are named twice, partitions and topics that do not exist, and topics without partitions."""
    known, other = conversation.topic("groups"), conversation.topic("groups-other", partitions=3)
    unknown = conversation.names.prefix + "no-such-topic"
    return [(other, [0]), (known, []), (unknown, []), (other, [7, 1]), (unknown, [0]), (known, [-1, 0]), (other, [2])]


def commit_rows(conversation: Conversation, version: int, group: str, rows: list[tuple[str, list[int]]]) -> None:
    epochs = {"committed_leader_epoch": -1} if version >= 6 else {}
    topics = [
        {
            "name": name,
            "partitions": [
                {"partition_index": each, "committed_offset": 5, "committed_metadata": "m"} | epochs for each in numbers
            ],
        }
        for name, numbers in rows
    ]  # fmt: skip
    fields = {"generation_id_or_member_epoch": -1, "member_id": ""} if version >= 1 else {}
    conversation.call("OffsetCommit", version, group_id=group, topics=topics, **fields)


@case("OffsetCommit", range(1, COMMIT_LAST + 1))
def test_commit_odd_rows(conversation: Conversation, version: int) -> None:
    group, rows = new_group(conversation), odd_rows(conversation)
    commit_rows(conversation, version, group, rows)
    topic = rows[0][0]
    for others in (rows[1:2], rows[1:3], [(topic, [0]), rows[1], (topic, [1])], [(topic, [7]), (topic, [8, 8])]):
        commit_rows(conversation, version, group, others)


@case("OffsetCommit", range(1, COMMIT_LAST + 1))
@pytest.mark.parametrize("sizes", [(1, 5000), (5000, 1), (5000, 1, 5000), (5000, 5000), (1, 5000, 1)], ids=str)
@pytest.mark.parametrize("topics", [1, 2])
def test_commit_the_same_partition_again(
    conversation: Conversation, version: int, sizes: tuple[int, ...], topics: int
) -> None:
    """Metadata of 5000 characters is too large."""
    group, topic = new_group(conversation), conversation.topic("groups")
    asked = named_again(topic, sizes, topics, {"committed_leader_epoch": -1} if version >= 6 else {})
    fields = {"group_id": group, "topics": asked, "generation_id_or_member_epoch": -1}
    conversation.call("OffsetCommit", version, **fields, member_id="")
    fetch(conversation, FETCH_LAST, group, None)
    conversation.call("OffsetCommit", version, **fields, member_id=NOBODY)
    refused = {"partition_index": 7, "committed_offset": 5, "committed_metadata": "m"}
    asked.append({"name": topic, "partitions": [refused | {"committed_leader_epoch": -1} if version >= 6 else refused]})
    conversation.call("OffsetCommit", version, **fields, member_id="")


def named_again(topic: str, sizes: tuple[int, ...], topics: int, epochs: dict[str, int]) -> list[dict[str, Any]]:
    """Partition 0 for each size of its metadata, under the topic named once or several times."""
    rows = [
        {"partition_index": 0, "committed_offset": 5 + at, "committed_metadata": "m" * size} | epochs
        for at, size in enumerate(sizes)
    ]
    parts = [rows] if topics == 1 else [rows[:1], rows[1:]]
    return [{"name": topic, "partitions": part} for part in parts]


@case("OffsetDelete")
def test_delete_odd_rows(conversation: Conversation, version: int) -> None:
    group, rows = new_group(conversation), odd_rows(conversation)
    commit_rows(conversation, 2, group, rows)
    for some in (rows, rows[1:2], rows[1:3]):
        topics = [
            {"name": name, "partitions": [{"partition_index": each} for each in numbers]} for name, numbers in some
        ]
        conversation.call("OffsetDelete", version, group_id=group, topics=topics)


@case("OffsetFetch", range(1, FETCH_LAST + 1))
def test_fetch_odd_rows(conversation: Conversation, version: int) -> None:
    group, rows = new_group(conversation), odd_rows(conversation)
    commit_rows(conversation, 2, group, rows)
    topics = [{"name": name, "partition_indexes": numbers * 2} for name, numbers in rows]
    if version < 8:
        conversation.call("OffsetFetch", version, group_id=group, topics=topics)
    else:
        asked = [{"group_id": group, "topics": each} for each in (topics, [], None, topics[1:2])]
        conversation.call("OffsetFetch", version, groups=asked, require_stable=False)


@case("OffsetFetch", range(1, FETCH_LAST + 1))
def test_fetch_the_same_partition_again(conversation: Conversation, version: int) -> None:
    group, topic = new_group(conversation), conversation.topic("groups")
    commit(conversation, 2, group, topic)
    for topics in (
        [{"name": topic, "partition_indexes": [0] * 50 + [7] * 12}],
        [{"name": topic, "partition_indexes": [0]}] * 30,
        [{"name": conversation.names.prefix + "no-such-topic", "partition_indexes": [0]}] * 30,
    ):
        if version < 8:
            conversation.call("OffsetFetch", version, group_id=group, topics=topics)
        else:
            asked = [{"group_id": group, "topics": topics}]
            conversation.call("OffsetFetch", version, groups=asked, require_stable=False)
