"""SCRAM users (50, 51), client quotas (48, 49), and ACLs (29 to 31) of a server without an authorizer."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from tests.conformance.acls import ACL_VERSIONS, READ, acl, acl_filter
from tests.conformance.conversation import READY_WITHIN_S, Conversation, case

SHA_256, SHA_512 = 1, 2
EXACT, DEFAULT, SPECIFIED = range(3)
QUOTA_VERSIONS = range(2)


def user(conversation: Conversation, name: str = "user") -> str:
    """A user name that no other case uses."""
    return f"{conversation.names.prefix}{name}-{uuid.uuid4()}"


@case("DescribeAcls", ACL_VERSIONS)
def test_no_authorizer_no_acls(conversation: Conversation, version: int) -> None:
    conversation.call("DescribeAcls", version, **acl_filter("x"))
    conversation.call("CreateAcls", version, creations=[acl("x", READ), acl("", READ)])
    conversation.call("DeleteAcls", version, filters=[acl_filter("x")])


# SCRAM


def upsertion(name: str, mechanism: int = SHA_256, iterations: int = 4096) -> dict[str, Any]:
    salted = bytes(32 if mechanism == SHA_256 else 64)
    return {
        "name": name, "mechanism": mechanism, "iterations": iterations, "salt": b"salt", "salted_password": salted,
    }  # fmt: skip


def alter(
    conversation: Conversation, *upsertions: dict[str, Any], deletions: list[dict[str, Any]] | None = None
) -> None:
    conversation.call("AlterUserScramCredentials", 0, deletions=deletions or [], upsertions=list(upsertions))
    conversation.answers[-1]["AlterUserScramCredentials"]["results"].sort(key=repr)


def describe(conversation: Conversation, *users: str) -> None:
    conversation.call("DescribeUserScramCredentials", 0, users=[{"name": name} for name in users])
    noted = conversation.answers[-1]["DescribeUserScramCredentials"]["results"]
    for row in noted:
        row["credential_infos"].sort(key=repr)
    noted.sort(key=repr)


def until_known(conversation: Conversation, name: str, mechanisms: int) -> None:
    """Kafka's broker learns of the change from its controller."""
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        answer = conversation.client.call("DescribeUserScramCredentials", 0, users=[{"name": name}])
        if len(answer["results"][0]["credential_infos"]) == mechanisms:
            return
        time.sleep(0.02)
    raise AssertionError(answer)


@case("AlterUserScramCredentials", [0])
def test_users_are_made_changed_and_deleted(conversation: Conversation, version: int) -> None:
    name = user(conversation)
    alter(conversation, upsertion(name))
    until_known(conversation, name, 1)
    alter(conversation, upsertion(name, SHA_512, 8192))
    until_known(conversation, name, 2)
    describe(conversation, name)
    alter(conversation, deletions=[{"name": name, "mechanism": SHA_256}])
    until_known(conversation, name, 1)
    describe(conversation, name, name + "-other")
    describe(conversation, name, name)
    alter(conversation, deletions=[{"name": name, "mechanism": SHA_256}])
    alter(conversation, deletions=[{"name": name, "mechanism": SHA_512}])
    until_known(conversation, name, 0)
    describe(conversation, name)


@case("AlterUserScramCredentials", [0])
def test_users_that_cannot_be(conversation: Conversation, version: int) -> None:
    one, two, three, four = (user(conversation, str(number)) for number in range(4))
    alter(conversation, upsertion(one, iterations=4095), upsertion(two, iterations=16385), upsertion(three, 0),
          upsertion(four, 3), upsertion(""))  # fmt: skip
    alter(conversation, upsertion(one), upsertion(one, SHA_512))
    alter(conversation, upsertion(one), upsertion(two), deletions=[{"name": one, "mechanism": SHA_256}])
    alter(conversation, deletions=[{"name": one, "mechanism": 9}, {"name": "", "mechanism": SHA_256}])
    alter(conversation)


# Quotas


def op(key: str, value: float = 0.0, *, remove: bool = False) -> dict[str, Any]:
    return {"key": key, "value": value, "remove": remove}


def entry(entity: dict[str, str | None], *ops: dict[str, Any]) -> dict[str, Any]:
    rows = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    return {"entity": rows, "ops": list(ops)}


def alter_quotas(
    conversation: Conversation, version: int, *entries: dict[str, Any], validate_only: bool = False
) -> None:
    conversation.call("AlterClientQuotas", version, entries=list(entries), validate_only=validate_only)
    noted = conversation.answers[-1]["AlterClientQuotas"]["entries"]
    for row in noted:
        row["entity"].sort(key=repr)
    noted.sort(key=repr)


def component(kind: str, match_type: int = EXACT, match: str | None = None) -> dict[str, Any]:
    return {"entity_type": kind, "match_type": match_type, "match": match}


def described(conversation: Conversation, version: int, *components: dict[str, Any], strict: bool = False) -> None:
    conversation.call("DescribeClientQuotas", version, components=list(components), strict=strict)
    noted = conversation.answers[-1]["DescribeClientQuotas"]
    ours = [row for row in noted["entries"] or () if "<run>" in repr(row)]
    for row in ours:
        row["entity"].sort(key=repr)
        row["values"].sort(key=repr)
    noted["entries"] = None if noted["entries"] is None else sorted(ours, key=repr)


def until_quotas(conversation: Conversation, name: str, entities: int) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        answer = conversation.client.call(
            "DescribeClientQuotas", 1, components=[component("user", EXACT, name)], strict=False
        )
        if len(answer["entries"]) == entities:
            return
        time.sleep(0.02)
    raise AssertionError(answer)


@case("AlterClientQuotas", QUOTA_VERSIONS)
def test_quotas_are_set_described_and_removed(conversation: Conversation, version: int) -> None:
    name = user(conversation)
    alter_quotas(
        conversation, version,
        entry({"user": name}, op("producer_byte_rate", 1000), op("request_percentage", 12.5)),
        entry({"user": name, "client-id": name}, op("consumer_byte_rate", 2000)),
        entry({"user": name, "client-id": None}, op("controller_mutation_rate", 0.5)),
    )  # fmt: skip
    until_quotas(conversation, name, 3)
    exact = component("user", EXACT, name)
    described(conversation, version, exact)
    described(conversation, version, exact, strict=True)
    described(conversation, version, exact, component("client-id", SPECIFIED))
    described(conversation, version, exact, component("client-id", DEFAULT))
    described(conversation, version, component("user", SPECIFIED), strict=True)
    described(conversation, version)
    alter_quotas(conversation, version, entry({"user": name}, op("producer_byte_rate", 5)), validate_only=True)
    described(conversation, version, exact, strict=True)
    alter_quotas(
        conversation, version,
        entry({"user": name}, op("producer_byte_rate", remove=True), op("request_percentage", remove=True)),
        entry({"user": name, "client-id": name}, op("consumer_byte_rate", remove=True), op("x", remove=True)),
    )  # fmt: skip
    until_quotas(conversation, name, 1)
    described(conversation, version, exact)
    alter_quotas(
        conversation, version, entry({"user": name, "client-id": None}, op("controller_mutation_rate", remove=True))
    )


WRONG_ENTRIES: list[tuple[dict[str, str | None], list[dict[str, Any]]]] = [
    ({}, [op("producer_byte_rate", 1)]),
    ({"user": ""}, [op("producer_byte_rate", 1)]),
    ({"client-id": ""}, [op("producer_byte_rate", 1)]),
    ({"group": "x"}, [op("producer_byte_rate", 1)]),
    ({"user": "x", "ip": "127.0.0.1"}, [op("producer_byte_rate", 1)]),
    ({"ip": "127.0.0.1"}, [op("producer_byte_rate", 1)]),
    ({"ip": "a b"}, [op("connection_creation_rate", 1)]),
    ({"user": "x"}, [op("connection_creation_rate", 1)]),
    ({"user": "x"}, [op("nothing", 1)]),
    ({"user": "x"}, [op("producer_byte_rate", 0)]),
    ({"user": "x"}, [op("producer_byte_rate", -1)]),
    ({"user": "x"}, [op("producer_byte_rate", 1.5)]),
    ({"user": "x"}, [op("producer_byte_rate", 1e19)]),
    ({"ip": None}, [op("connection_creation_rate", 2.0**31)]),
    ({"user": "x"}, [op("producer_byte_rate", 1), op("producer_byte_rate", 2)]),
    ({"user": "x"}, [op("producer_byte_rate", 1), op("nothing", 2)]),
]


@case("AlterClientQuotas", QUOTA_VERSIONS)
@pytest.mark.parametrize("number", range(len(WRONG_ENTRIES)))
def test_quotas_that_cannot_be(conversation: Conversation, version: int, number: int) -> None:
    entity, ops = WRONG_ENTRIES[number]
    alter_quotas(conversation, version, entry(entity, *ops))


@case("DescribeClientQuotas", QUOTA_VERSIONS)
@pytest.mark.parametrize(
    "components",
    [
        [component("", EXACT, "x")],
        [component("group", EXACT, "x")],
        [component("user", EXACT)],
        [component("user", DEFAULT, "x")],
        [component("user", SPECIFIED, "x")],
        [component("user", 7, "x")],
        [component("user", EXACT, "x"), component("user", DEFAULT)],
        [component("user", EXACT, "x"), component("ip", DEFAULT)],
        [component("user", EXACT, "nobody")],
    ],
)
def test_filters_of_quotas(conversation: Conversation, version: int, components: list[dict[str, Any]]) -> None:
    described(conversation, version, *components)
