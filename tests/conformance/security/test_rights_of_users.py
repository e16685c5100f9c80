"""The rights and quotas of two users who log in, as a super user sets them, where everything else is denied."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from tests.conformance import acls
from tests.conformance.acls import (
    ALL,
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CREATE,
    DELETE,
    DENY,
    DESCRIBE,
    GROUP,
    PREFIXED,
    READ,
    WRITE,
)
from tests.conformance.conversation import Conversation, Pair, case
from tests.conformance.logins import SUPER_USER, USERS, plain
from tests.conformance.records import records
from tests.conformance.requests import encode_records, fetch_fields, fetch_partition, produce_fields
from tests.conformance.security.test_security_apis import EXACT, component, entry, op
from tests.integration.native import wait_for
from tests.support.raw_client import RawClient

ALICE, BOB = "User:alice", "User:bob"
ELSEWHERE, HERE = "192.0.2.1", "127.0.0.1"
COMMITTED: dict[str, Any] = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}


@pytest.fixture(scope="module")
def pair(pair_with_logins: Pair) -> Pair:
    return pair_with_logins


class Resources(NamedTuple):
    """Names of a topic and a group, whose prefix no other case uses."""

    prefix: str
    topic: str
    group: str


def allow(principal: str, operation: int, name: str, **more: Any) -> dict[str, Any]:
    return acls.acl(name, operation, principal=principal, **more)


def deny(principal: str, operation: int, name: str, **more: Any) -> dict[str, Any]:
    return acls.acl(name, operation, DENY, principal=principal, **more)


Granted = Callable[[Resources], list[dict[str, Any]]]
GRANTS: dict[str, Granted] = {
    "nothing": lambda of: [],
    "literal": lambda of: [
        allow(ALICE, READ, of.topic), allow(ALICE, READ, of.group, resource_type=GROUP), allow(BOB, WRITE, of.topic),
        allow(BOB, READ, of.prefix),  # is not its whole name
    ],
    "prefixed": lambda of: [
        allow(ALICE, READ, of.prefix, resource_pattern_type=PREFIXED),
        allow(ALICE, READ, of.prefix, resource_type=GROUP, resource_pattern_type=PREFIXED),
        allow(ALICE, CREATE, of.prefix, resource_pattern_type=PREFIXED),
        allow(BOB, ALL, of.topic + "-x", resource_pattern_type=PREFIXED),
    ],
    "any": lambda of: [
        allow(ALICE, READ, "*"), allow(BOB, DESCRIBE, "*", resource_type=GROUP), allow(BOB, WRITE, "*"),
        allow(BOB, READ, "*", resource_type=GROUP, host=ELSEWHERE),
    ],
    "any user": lambda of: [allow("User:*", READ, of.topic), allow("User:*", DESCRIBE, of.group, resource_type=GROUP)],
    "hosts": lambda of: [
        allow(ALICE, ALL, of.topic, host=ELSEWHERE), allow(ALICE, READ, of.group, resource_type=GROUP, host=HERE),
        allow(BOB, ALL, of.topic, host=HERE), deny(BOB, ALL, of.topic, host=ELSEWHERE),
    ],
    "denied": lambda of: [
        allow(ALICE, ALL, of.topic), deny(ALICE, READ, of.prefix, resource_pattern_type=PREFIXED),
        allow(BOB, ALL, of.topic), deny("User:*", WRITE, "*", host=HERE), deny(BOB, DESCRIBE, of.topic),
        allow(BOB, ALL, of.group, resource_type=GROUP), deny(BOB, READ, of.group, resource_type=GROUP),
    ],
    "implied": lambda of: [allow(ALICE, ALTER, of.topic), allow(BOB, DELETE, of.topic)],
    "not implied": lambda of: [
        allow(ALICE, ALTER_CONFIGS, of.topic), allow(ALICE, CREATE, of.topic),
        allow(BOB, DESCRIBE, of.topic), allow(BOB, DELETE, of.group, resource_type=GROUP),
    ],
    "of the cluster": lambda of: [
        allow(ALICE, CREATE, "kafka-cluster", resource_type=CLUSTER),
        allow(BOB, DESCRIBE, "kafka-cluster", resource_type=CLUSTER),
    ],
}  # fmt: skip


def log_in(client: RawClient, user: str) -> RawClient:
    assert client.call("SaslHandshake", 1, mechanism="PLAIN")["error_code"] == 0
    assert client.call("SaslAuthenticate", 2, auth_bytes=plain(user, USERS[user]))["error_code"] == 0
    return client


@contextmanager
def granted(conversation: Conversation, grants: Granted) -> Iterator[Resources]:
    """The super user, whose connection the conversation has, makes the resources and their ACLs."""
    log_in(conversation.client, SUPER_USER)
    prefix = f"rights-{uuid.uuid4()}"
    topic = conversation.topic(f"{prefix}-topic")
    found = Resources(conversation.names.prefix + prefix, topic, f"{conversation.names.prefix}{prefix}-group")
    for wanted in grants(found):
        acls.create(conversation, wanted)
    try:
        yield found
    finally:
        conversation.client.call("DeleteAcls", 3, filters=[acls.acl_filter()])
        acls.await_acls(conversation, None, lambda operations: not operations)


def ask_for_all(conversation: Conversation, client: RawClient, of: Resources) -> None:
    """Record every answer; those about all topics or groups as far as they concern these ones."""

    def ask(api: str, version: int, **fields: Any) -> None:
        conversation.receive(api, version, client.send(api, version, **fields), client)

    ask("Produce", 9, **produce_fields(9, {of.topic: {0: encode_records(records(1), 2)}}))
    ask("Fetch", 12, **fetch_fields(12, [{"topic": of.topic, "partitions": [fetch_partition(12, 0, 0)]}]))
    operations = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    ask("Metadata", 9, topics=[{"name": of.topic}], allow_auto_topic_creation=False, **operations)
    every = client.call("Metadata", 9, topics=None, allow_auto_topic_creation=False)
    conversation.say({"topics": [each["name"] == of.topic for each in every["topics"] if of.prefix in each["name"]]})
    wanted = [{"name": of.topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    ask("ListOffsets", 5, replica_id=-1, topics=wanted)
    new = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    topics = [{"name": f"{of.prefix}{name}", **new} for name in ("-new", "")]
    ask("CreateTopics", 4, topics=topics, timeout_ms=10_000, validate_only=True)
    ask("FindCoordinator", 3, key=of.group, key_type=0)
    ask("OffsetCommit", 8, group_id=of.group, generation_id_or_member_epoch=-1, member_id="",
        topics=[{"name": of.topic, "partitions": [COMMITTED]}])  # fmt: skip
    listed = client.call("ListGroups", 4, states_filter=[])
    conversation.say((listed["error_code"], [each["group_id"] for each in listed["groups"]].count(of.group)))


@case("Metadata", [9])
@pytest.mark.parametrize("kind", GRANTS)
def test_rights(conversation: Conversation, version: int, kind: str) -> None:
    with granted(conversation, GRANTS[kind]) as of:
        conversation.when_loaded("FindCoordinator", 0, key=of.group)
        conversation.when_loaded("OffsetFetch", 5, group_id=of.group, topics=[])
        users = {user: log_in(conversation.connect(), user) for user in ("alice", "bob")}
        for user, client in users.items():
            conversation.say(user)
            ask_for_all(conversation, client, of)
        ask_for_all(conversation, conversation.client, of)


@case("AlterClientQuotas", [1])
def test_a_quota_of_a_user(conversation: Conversation, version: int) -> None:
    """Only the super user may set it. It bounds that user, and no other."""

    def change(client: RawClient, **changed: Any) -> None:
        entries = [entry({"user": "alice"}, op("producer_byte_rate", **changed))]
        conversation.receive(
            "AlterClientQuotas", version,
            client.send("AlterClientQuotas", version, entries=entries, validate_only=False), client,
        )  # fmt: skip

    with granted(conversation, lambda of: [allow("User:*", WRITE, of.topic)]) as of:
        fields = produce_fields(9, {of.topic: {0: encode_records(records(20), 2)}})
        alice, bob = (log_in(conversation.connect(), user) for user in ("alice", "bob"))
        wanted: dict[str, Any] = {"components": [component("user", EXACT, "alice")], "strict": True}
        change(alice, value=1e9)
        conversation.receive("DescribeClientQuotas", 1, alice.send("DescribeClientQuotas", 1, **wanted), alice)
        try:
            change(conversation.client, value=1)
            wait_for(lambda: conversation.client.call("DescribeClientQuotas", 1, **wanted)["entries"], "it is known")
            for client in (bob, alice):
                conversation.say({"waits": client.call("Produce", 9, **fields)["throttle_time_ms"] > 0})
        finally:
            change(conversation.client, remove=True)
