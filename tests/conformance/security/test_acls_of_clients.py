"""What ACLs permit for records, groups and transactions; see acls.py."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.acls import (
    ALL,
    DELETE,
    DENY,
    DESCRIBE,
    GROUP,
    READ,
    TRANSACTIONAL_ID,
    WRITE,
    acl,
    create,
    denied_group,
    denied_transaction,
    name_of,
    two_topics,
    without_acls,
)
from tests.conformance.conversation import Conversation, Pair, case
from tests.conformance.records import records
from tests.conformance.requests import encode_records, fetch_fields, fetch_partition, native_magic, produce_fields


@pytest.fixture
def pair(pair_with_acls: Pair) -> Pair:
    return pair_with_acls


# Records


@case("Produce")
@pytest.mark.parametrize("acks", [-1, 0])
def test_produce(conversation: Conversation, version: int, acks: int) -> None:
    allowed, denied = two_topics(conversation, "produce")
    data = encode_records(records(2), native_magic(version))
    try:
        fields = produce_fields(version, {denied: {0: data, 5: data}, allowed: {0: data}}, acks=acks)
        if acks:
            conversation.call("Produce", version, **fields)
            conversation.call("Produce", version, **produce_fields(version, {denied: {0: data}}))
        else:
            conversation.client.send("Produce", version, **fields)
            conversation.outcome()
    finally:
        conversation.client = conversation.connect()
        without_acls(conversation, denied)


@case("Produce", [3, 11])
def test_produce_of_a_topic_that_is_not_there(conversation: Conversation, version: int) -> None:
    name = name_of(conversation, "nothing")
    create(conversation, acl(name, READ))
    data = encode_records(records(1), 2)
    conversation.call("Produce", version, **produce_fields(version, {name: {0: data}}))


def fetched(conversation: Conversation, version: int, *names: str, **more: Any) -> None:
    topics = [
        ({"topic_id": conversation.topic_id(name)} if version >= 13 else {"topic": conversation.names.prefix + name})
        | {"partitions": [fetch_partition(version, 0, 0)]}
        for name in names
    ]
    conversation.call("Fetch", version, **fetch_fields(version, topics, **more))


@case("Fetch")
def test_fetch(conversation: Conversation, version: int) -> None:
    names = ("fetch-allowed", "fetch-denied")
    for name in names:
        conversation.topic(name)
        conversation.topic_id(name)
    _, denied = two_topics(conversation, "fetch")
    conversation.names.start_offset = 0
    try:
        fetched(conversation, version, *names)
        fetched(conversation, version, "fetch-denied", max_wait_ms=100, min_bytes=1)
        if version >= 7:
            fetched(conversation, version, *names, session=(0, 0))
    finally:
        without_acls(conversation, denied)


@case("ListOffsets")
def test_list_offsets(conversation: Conversation, version: int) -> None:
    allowed, denied = two_topics(conversation, "offsets")
    rows = [{"partition_index": number, "timestamp": -1} for number in (0, 3)]
    if version == 0:
        rows = [row | {"max_num_offsets": 1} for row in rows]
    asked = [{"name": name, "partitions": rows} for name in (denied, allowed)]
    try:
        more = {"isolation_level": 0} if version >= 2 else {}
        conversation.call("ListOffsets", version, replica_id=-1, topics=asked, **more)
        conversation.call("ListOffsets", version, replica_id=-1, topics=asked[:1], **more)
    finally:
        without_acls(conversation, denied)


def by_partition(conversation: Conversation, kind: str, api: str, version: int, **row: Any) -> None:
    allowed, denied = two_topics(conversation, kind)
    asked = [{"name": name, "partitions": [row]} for name in (denied, allowed)]
    try:
        conversation.call(api, version, topics=asked, timeout_ms=5_000)
        conversation.call(api, version, topics=asked[:1], timeout_ms=5_000)
    finally:
        without_acls(conversation, denied)


@case("DeleteRecords")
def test_delete_records(conversation: Conversation, version: int) -> None:
    by_partition(conversation, "records", "DeleteRecords", version, partition_index=0, offset=0)


@case("OffsetForLeaderEpoch", range(2, 5))
def test_offset_for_leader_epoch(conversation: Conversation, version: int) -> None:
    _, denied = two_topics(conversation, "epochs")
    row = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    more = {"replica_id": -1} if version >= 3 else {}
    try:
        conversation.call("OffsetForLeaderEpoch", version, topics=[{"topic": denied, "partitions": [row]}], **more)
    finally:
        without_acls(conversation, denied)


@case("DescribeProducers")
def test_describe_producers(conversation: Conversation, version: int) -> None:
    allowed, denied = two_topics(conversation, "producers")
    asked = [{"name": name, "partition_indexes": [0, 7]} for name in (denied, allowed)]
    try:
        conversation.call("DescribeProducers", version, topics=asked)
    finally:
        without_acls(conversation, denied)


# Groups


@case("FindCoordinator")
def test_find_coordinator(conversation: Conversation, version: int) -> None:
    group = denied_group(conversation)
    transactional_id = name_of(conversation, "transaction")
    create(conversation, acl(transactional_id, READ, resource_type=TRANSACTIONAL_ID, permission_type=DENY))
    for key_type, key in ((0, group), (1, transactional_id)):
        if version == 0 and key_type:
            continue
        asked: dict[str, Any] = {"key": key} if version < 4 else {"coordinator_keys": [key]}
        conversation.call("FindCoordinator", version, **(asked | ({"key_type": key_type} if version else {})))


@case("JoinGroup")
def test_join_group(conversation: Conversation, version: int) -> None:
    fields: dict[str, Any] = {
        "group_id": denied_group(conversation), "session_timeout_ms": 30_000, "member_id": "m",
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}],
    }  # fmt: skip
    if version >= 1:
        fields["rebalance_timeout_ms"] = 30_000
    conversation.call("JoinGroup", version, **fields)


@case("SyncGroup")
def test_sync_group(conversation: Conversation, version: int) -> None:
    group = denied_group(conversation)
    more = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    conversation.call("SyncGroup", version, group_id=group, generation_id=1, member_id="m", assignments=[], **more)


@case("Heartbeat")
def test_heartbeat(conversation: Conversation, version: int) -> None:
    conversation.call("Heartbeat", version, group_id=denied_group(conversation), generation_id=1, member_id="m")


@case("LeaveGroup")
def test_leave_group(conversation: Conversation, version: int) -> None:
    group = denied_group(conversation)
    member = {"member_id": "m"} if version < 3 else {"members": [{"member_id": "m", "group_instance_id": None}]}
    conversation.call("LeaveGroup", version, group_id=group, **member)


@case("DescribeGroups")
def test_describe_groups(conversation: Conversation, version: int) -> None:
    more = {"include_authorized_operations": True} if version >= 3 else {}
    groups = [denied_group(conversation), denied_group(conversation, DESCRIBE)]
    conversation.when_loaded("DescribeGroups", version, groups=groups, **more)


@case("DeleteGroups")
def test_delete_groups(conversation: Conversation, version: int) -> None:
    conversation.when_loaded(
        "DeleteGroups", version, groups_names=[denied_group(conversation, READ), denied_group(conversation, DELETE)]
    )


@case("OffsetCommit", range(1, 10))
def test_offset_commit(conversation: Conversation, version: int) -> None:
    allowed, denied = two_topics(conversation, "commits")
    partition: dict[str, Any] = {"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}
    topics = [{"name": name, "partitions": [partition]} for name in (denied, allowed)]
    member = {"generation_id_or_member_epoch": -1, "member_id": ""} if version >= 1 else {}
    group = denied_group(conversation, READ)
    try:
        conversation.when_loaded("OffsetCommit", version, group_id=denied_group(conversation), topics=topics, **member)
        conversation.when_loaded("OffsetCommit", version, group_id=group, topics=topics, **member)
        conversation.when_loaded("OffsetCommit", version, group_id=group, topics=topics[:1], **member)
    finally:
        without_acls(conversation, denied)


@case("OffsetFetch", range(1, 10))
def test_offset_fetch(conversation: Conversation, version: int) -> None:
    allowed, denied = two_topics(conversation, "fetched")
    groups = [denied_group(conversation), denied_group(conversation, READ)]
    partition = {"partition_index": 0, "committed_offset": 3, "committed_metadata": "m"}
    committed = [{"name": name, "partitions": [partition]} for name in (allowed, denied)]
    without_acls(conversation, denied)
    conversation.when_loaded("OffsetCommit", 2, group_id=groups[1], topics=committed,
                        generation_id_or_member_epoch=-1, member_id="")  # fmt: skip
    create(conversation, acl(denied, ALL, DENY))
    named = [{"name": name, "partition_indexes": [0, 1]} for name in (denied, allowed)]
    try:
        for topics in (named, named[:1], None):
            if topics is None and version < 2:
                continue
            if version >= 8:
                rows = [{"group_id": group, "topics": topics} for group in groups]
                conversation.when_loaded("OffsetFetch", version, groups=rows, require_stable=False)
                continue
            for group in groups:
                conversation.when_loaded("OffsetFetch", version, group_id=group, topics=topics)
    finally:
        without_acls(conversation, denied)


@case("OffsetDelete")
def test_offset_delete(conversation: Conversation, version: int) -> None:
    allowed, denied = two_topics(conversation, "deleted")
    group = denied_group(conversation, DELETE)
    create(conversation, acl(group, READ, resource_type=GROUP))
    partition = {"partition_index": 0, "committed_offset": 3, "committed_metadata": "m"}
    conversation.when_loaded("OffsetCommit", 2, group_id=group, topics=[{"name": allowed, "partitions": [partition]}],
                        generation_id_or_member_epoch=-1, member_id="")  # fmt: skip
    topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in (denied, allowed)]
    try:
        conversation.when_loaded("OffsetDelete", version, group_id=denied_group(conversation, READ), topics=topics)
        conversation.when_loaded("OffsetDelete", version, group_id=group, topics=topics)
    finally:
        without_acls(conversation, denied)


@case("ConsumerGroupHeartbeat")
def test_consumer_group_heartbeat(conversation: Conversation, version: int) -> None:
    conversation.call(
        "ConsumerGroupHeartbeat", version, group_id=denied_group(conversation), member_id="", member_epoch=0,
        instance_id=None, rack_id=None, rebalance_timeout_ms=30_000, subscribed_topic_names=["t"],
        server_assignor=None, topic_partitions=[],
    )  # fmt: skip


@case("ConsumerGroupDescribe")
def test_consumer_group_describe(conversation: Conversation, version: int) -> None:
    groups = [denied_group(conversation)]
    conversation.call("ConsumerGroupDescribe", version, group_ids=groups, include_authorized_operations=True)


# Transactions


@case("AddPartitionsToTxn", range(4))
def test_add_partitions_to_txn(conversation: Conversation, version: int) -> None:
    allowed, denied = two_topics(conversation, "added")
    topics = [{"name": name, "partitions": [0, 1]} for name in (denied, allowed)]
    try:
        for transactional_id in (denied_transaction(conversation), denied_transaction(conversation, WRITE)):
            conversation.call(
                "AddPartitionsToTxn", version, v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=1, v3_and_below_producer_epoch=0, v3_and_below_topics=topics,
            )  # fmt: skip
    finally:
        without_acls(conversation, denied)


@case("AddOffsetsToTxn", range(4))
def test_add_offsets_to_txn(conversation: Conversation, version: int) -> None:
    group = denied_group(conversation)
    for transactional_id in (denied_transaction(conversation), denied_transaction(conversation, WRITE)):
        conversation.call(
            "AddOffsetsToTxn", version, transactional_id=transactional_id, producer_id=1, producer_epoch=0,
            group_id=group,
        )  # fmt: skip


@case("EndTxn", range(4))
def test_end_txn(conversation: Conversation, version: int) -> None:
    transactional_id = denied_transaction(conversation)
    conversation.call(
        "EndTxn", version, transactional_id=transactional_id, producer_id=1, producer_epoch=0, committed=True
    )


@case("TxnOffsetCommit", range(4))
def test_txn_offset_commit(conversation: Conversation, version: int) -> None:
    _, denied = two_topics(conversation, "pending")
    partition = {"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}
    topics = [{"name": denied, "partitions": [partition]}]
    group, readable = denied_group(conversation), denied_group(conversation, READ)
    writable = denied_transaction(conversation, WRITE)
    try:
        for transactional_id, group_id in (
            (denied_transaction(conversation), readable), (writable, group), (writable, readable),
        ):  # fmt: skip
            conversation.call(
                "TxnOffsetCommit", version, transactional_id=transactional_id, group_id=group_id, producer_id=1,
                producer_epoch=0, topics=topics,
            )  # fmt: skip
    finally:
        without_acls(conversation, denied)


@case("DescribeTransactions", [0])
def test_describe_transactions(conversation: Conversation, version: int) -> None:
    conversation.call("DescribeTransactions", version, transactional_ids=[denied_transaction(conversation)])
