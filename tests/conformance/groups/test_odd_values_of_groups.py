"""Odd values in requests of groups."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tests.conformance.conversation import Conversation, Pair
from tests.conformance.groups import test_consumer_groups as consumer
from tests.conformance.groups.test_groups import ASSIGNMENT, METADATA, commit, fetch, join, new_group, sync
from tests.conformance.odd_values import Fields, Odd, check

PROTOCOLS = [{"name": "range", "metadata": METADATA}]
STATIC = "static"
ROW = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m", "committed_leader_epoch": 0}
OTHER_GROUPS = ("group_id = ' '", "group_id = 'no-such'", "group_id = xxx...")
"""Those that earlier changes have made, or not."""
NEVER_ANSWERED = ("protocols = 'twice'", "*.metadata = *")
"""Kafka's coordinator fails."""


def joining(conversation: Conversation) -> Fields:
    group = new_group(conversation)
    asked = {"group_id": group, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 60_000, "reason": "r"}
    fields: Fields = asked | {"protocol_type": "consumer", "protocols": PROTOCOLS}
    return fields | {"member_id": conversation.client.call("JoinGroup", 9, **fields, member_id="")["member_id"]}


def member(conversation: Conversation, instance_id: str | None = None) -> Fields:
    """The only member of a stable group."""
    group = new_group(conversation)
    version, more = (3, {}) if instance_id is None else (5, {"group_instance_id": instance_id})
    joined = join(conversation, version, group, **more)
    sync(conversation, min(version, 3), group, joined["member_id"], joined["generation_id"], **more)
    return {"group_id": group, "generation_id": joined["generation_id"], "member_id": joined["member_id"], **more}


def rejoining(conversation: Conversation) -> Fields:
    asked = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 60_000, "reason": "r"}
    return member(conversation, STATIC) | asked | {"protocol_type": "consumer", "protocols": PROTOCOLS}


def syncing(conversation: Conversation) -> Fields:
    mine = member(conversation, STATIC)
    given = [{"member_id": mine["member_id"], "assignment": ASSIGNMENT}]
    return mine | {"protocol_type": "consumer", "protocol_name": "range", "assignments": given}


def leaving(conversation: Conversation) -> Fields:
    mine = member(conversation, STATIC)
    row = {"member_id": mine["member_id"], "group_instance_id": STATIC, "reason": "r"}
    return {"group_id": mine["group_id"], "members": [row]}


def topic_of(conversation: Conversation) -> str:
    return conversation.topic("groups")


def committing(conversation: Conversation) -> Fields:
    mine, topics = member(conversation), [{"name": topic_of(conversation), "partitions": [ROW]}]
    identity = {"generation_id_or_member_epoch": mine["generation_id"], "member_id": mine["member_id"]}
    return {"group_id": mine["group_id"], "topics": topics, **identity}


def what_is_committed(conversation: Conversation, fields: Fields) -> None:
    if fields["group_id"].startswith(conversation.names.prefix):
        fetch(conversation, 9, fields["group_id"], None)


def committed(conversation: Conversation) -> str:
    group = new_group(conversation)
    commit(conversation, 2, group, topic_of(conversation))
    return group


def fetching(conversation: Conversation) -> Fields:
    topics = [{"name": topic_of(conversation), "partition_indexes": [0, 1]}]
    return {"groups": [{"group_id": committed(conversation), "topics": topics, "member_id": None, "member_epoch": -1}]}


def deleting_offsets(conversation: Conversation) -> Fields:
    topics = [{"name": topic_of(conversation), "partitions": [{"partition_index": 0}]}]
    return {"group_id": committed(conversation), "topics": topics}


def consumer_member(conversation: Conversation) -> Fields:
    group, topic = new_group(conversation), consumer.topic_of(conversation)
    joined = consumer.join(conversation, 0, group, "m1", [topic], instance_id=STATIC)
    return {
        "group_id": group, "member_id": "m1", "member_epoch": joined["member_epoch"], "instance_id": STATIC,
        "rebalance_timeout_ms": 30_000, "subscribed_topic_names": [topic], "server_assignor": "uniform",
        "topic_partitions": joined["assignment"]["topic_partitions"],
    }  # fmt: skip


def classic_member_of_a_consumer_group(conversation: Conversation) -> Fields:
    group, topic = new_group(conversation), consumer.topic_of(conversation)
    consumer.join(conversation, 0, group, "m1", [topic])
    name = topic.encode()
    subscription = struct.pack(">hih", 1, 1, len(name)) + name + struct.pack(">ii", -1, 0)
    protocols = [{"name": "range", "metadata": subscription}]
    joined = join(conversation, 3, group, protocols=protocols)
    return {
        "group_id": group, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 60_000, "reason": "r",
        "member_id": joined["member_id"], "protocol_type": "consumer", "protocols": protocols,
    }  # fmt: skip


def hide_ids(answer: dict[str, Any]) -> None:
    """Kafka chooses ids of another form."""
    answer["member_id"], answer["leader"] = bool(answer["member_id"]), bool(answer["leader"])


ODD = {
    "JoinGroup": Odd("JoinGroup", 9, joining, (*NEVER_ANSWERED, *OTHER_GROUPS)),
    "JoinGroup-old": Odd("JoinGroup", 3, lambda c: joining(c) | {"member_id": ""}, (*NEVER_ANSWERED, *OTHER_GROUPS)),
    "JoinGroup-again": Odd("JoinGroup", 9, rejoining, (*NEVER_ANSWERED, *OTHER_GROUPS)),
    "JoinGroup-mixed": Odd(
        "JoinGroup", 9, classic_member_of_a_consumer_group, (*NEVER_ANSWERED, *OTHER_GROUPS), tidy=hide_ids
    ),
    "SyncGroup": Odd("SyncGroup", 5, syncing),
    "Heartbeat": Odd("Heartbeat", 4, lambda conversation: member(conversation, STATIC)),
    "LeaveGroup": Odd("LeaveGroup", 5, leaving),
    "OffsetCommit": Odd("OffsetCommit", 9, committing, OTHER_GROUPS, what_is_committed),
    "OffsetFetch": Odd("OffsetFetch", 9, fetching, ("groups = []",)),
    "OffsetDelete": Odd("OffsetDelete", 0, deleting_offsets, OTHER_GROUPS, what_is_committed),
    "DescribeGroups": Odd("DescribeGroups", 5, lambda c: {"groups": [member(c)["group_id"]]}, ("groups.0 = *",)),
    "DeleteGroups": Odd("DeleteGroups", 2, lambda c: {"groups_names": [committed(c)]}, ("groups_names.0 = *",)),
    "FindCoordinator": Odd("FindCoordinator", 6, lambda conversation: {"coordinator_keys": ["g"]}),
    "ConsumerGroupHeartbeat": Odd("ConsumerGroupHeartbeat", 0, consumer_member, OTHER_GROUPS),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_values(pair: Pair, request: pytest.FixtureRequest, name: str) -> None:
    check(pair, request, ODD[name])
