"""What needs rights for the whole cluster: changes of security and of replicas, lists of everything, and requests that
only brokers send; see acls.py."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.acls import (
    ACL_VERSIONS,
    ACTION,
    ALTER,
    ALTER_CONFIGS,
    CREATE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    READ,
    TRANSACTIONAL_ID,
    acl,
    acl_filter,
    create,
    name_of,
    two_topics,
    where_denied,
    without_acls,
)
from tests.conformance.conversation import Conversation, Pair, case
from tests.conformance.groups.test_groups import commit
from tests.conformance.security.test_security_apis import QUOTA_VERSIONS, component, entry, op, upsertion
from tests.conformance.transactional.test_transaction_admin import listed, marker
from tests.conformance.transactions import Transactional, describe, one_segment, read_committed


@pytest.fixture
def pair(pair_with_acls: Pair) -> Pair:
    return pair_with_acls


SOME_USER, OTHER_USER = {"name": "ann", "mechanism": 1}, upsertion("bob")
QUOTA = entry({"user": "ann", "client-id": None}, op("producer_byte_rate", 1000))
ASKED: list[tuple[str, int, range, dict[str, Any]]] = [
    ("DescribeAcls", DESCRIBE, ACL_VERSIONS, acl_filter("x")),
    ("CreateAcls", ALTER, ACL_VERSIONS, {"creations": [acl("x", READ), acl("", READ)]}),
    ("DeleteAcls", ALTER, ACL_VERSIONS, {"filters": [acl_filter("x"), acl_filter("y")]}),
    ("DescribeUserScramCredentials", DESCRIBE, range(1), {"users": []}),
    # Kafka does not answer if the users are null.
    ("DescribeUserScramCredentials", DESCRIBE, range(1), {"users": [{"name": "ann"}, {"name": "bob"}]}),
    ("AlterUserScramCredentials", ALTER, range(1), {"deletions": [SOME_USER], "upsertions": [OTHER_USER]}),
    ("DescribeClientQuotas", DESCRIBE_CONFIGS, QUOTA_VERSIONS, {"components": [], "strict": False}),
    ("DescribeClientQuotas", DESCRIBE_CONFIGS, QUOTA_VERSIONS, {"components": [component("user")], "strict": True}),
    ("AlterClientQuotas", ALTER_CONFIGS, QUOTA_VERSIONS, {"entries": [QUOTA, QUOTA], "validate_only": False}),
    ("ElectLeaders", ALTER, range(3), {"topic_partitions": [{"topic": "x", "partitions": [0, 1]}]}),
    ("ElectLeaders", ALTER, range(3), {"topic_partitions": None}),
    ("AlterPartitionReassignments", ALTER, range(1), {"topics": []}),
    (
        "AlterPartitionReassignments", ALTER, range(1),
        {"topics": [{"name": "x", "partitions": [{"partition_index": 0, "replicas": None}]}]},
    ),
    (
        "AddPartitionsToTxn", ACTION, range(4, 6),
        {
            "transactions": [
                {
                    "transactional_id": "x", "producer_id": 1, "producer_epoch": 0, "verify_only": True,
                    "topics": [{"name": "x", "partitions": [0, 1]}],
                }
            ]
        },
    ),
]  # fmt: skip
TIMED = ("ElectLeaders", "AlterPartitionReassignments")


@pytest.mark.parametrize(
    ("api", "operation", "version", "fields"),
    [
        pytest.param(api, operation, version, fields, id=f"{api}-{number}-v{version}")
        for number, (api, operation, versions, fields) in enumerate(ASKED)
        for version in versions
    ],
)
def test_a_right_is_needed(pair: Pair, api: str, operation: int, version: int, fields: dict[str, Any]) -> None:
    asked = fields | ({"timeout_ms": 10_000} if api in TIMED else {})

    def script(conversation: Conversation) -> None:
        with where_denied(conversation, operation):
            conversation.call(api, version, **asked)

    pair.check(f"{api} v{version}", script)


# Transactions


@case("WriteTxnMarkers", [1])
@pytest.mark.parametrize("denied", [[ALTER], [ACTION], [ALTER, ACTION]], ids=["alter", "action", "both"])
def test_write_txn_markers(conversation: Conversation, version: int, denied: list[int]) -> None:
    """One of two rights is enough. A refused marker is not written."""
    topic, producer = one_segment(conversation, "markers"), Transactional(conversation)
    conversation.start_here(topic)
    producer.begin(topic, 2)
    topics = [{"name": topic, "partition_indexes": [0, 7]}, {"name": "x", "partition_indexes": [0]}]
    markers = [marker(producer, topic, committed=True, topics=topics)]
    with where_denied(conversation, *denied):
        conversation.call("WriteTxnMarkers", version, markers=markers)
        conversation.call("WriteTxnMarkers", version, markers=[])
    read_committed(conversation, topic, 0)


def hide(conversation: Conversation, producer: Transactional) -> None:
    create(conversation, acl(producer.transactional_id, CREATE, resource_type=TRANSACTIONAL_ID))


@case("ListTransactions")
def test_list_transactions(conversation: Conversation, version: int) -> None:
    """Those that the client may describe."""
    shown, hidden = mine = [Transactional(conversation) for _ in range(2)]
    hide(conversation, hidden)
    listed(conversation, version, mine)
    listed(conversation, version, mine, producer_id_filters=[hidden.id])
    with where_denied(conversation, DESCRIBE):
        listed(conversation, version, mine, producer_id_filters=[shown.id, hidden.id])


@case("DescribeTransactions", [0])
def test_describe_transactions_with_hidden_topics(conversation: Conversation, version: int) -> None:
    producer, allowed = Transactional(conversation), conversation.topic("described-allowed")
    hidden = conversation.topic("described-denied")
    producer.begin(allowed)
    producer.begin(hidden)
    two_topics(conversation, "described")
    try:
        describe(conversation, producer.transactional_id)
    finally:
        without_acls(conversation, hidden)


# Groups


@case("ListGroups")
def test_list_groups(conversation: Conversation, version: int) -> None:
    """All of them with the right to describe the cluster, and otherwise those that the client may describe."""
    topic = conversation.topic("listed")
    groups = [name_of(conversation, kind) for kind in ("open", "readable", "hidden", "denied")]
    for group in groups:
        commit(conversation, 2, group, topic)
    _, readable, hidden, denied = groups
    create(
        conversation, acl(readable, READ, resource_type=GROUP), acl(hidden, CREATE, resource_type=GROUP),
        acl(denied, DESCRIBE, DENY, resource_type=GROUP),
    )  # fmt: skip
    list_groups(conversation, version, groups)
    with where_denied(conversation, DESCRIBE):
        list_groups(conversation, version, groups)


def list_groups(conversation: Conversation, version: int, groups: list[str]) -> None:
    more: dict[str, Any] = {"states_filter": []} if version >= 4 else {}
    if version >= 5:
        more["types_filter"] = []
    answer = conversation.call("ListGroups", version, **more)
    conversation.answers.pop()
    found = {row["group_id"] for row in answer["groups"]}
    conversation.say([answer["error_code"], [group in found for group in groups]])
