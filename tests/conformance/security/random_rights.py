"""ACLs at random, and the names that requests of a client with these rights draw."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from random import Random
from typing import Any

from tests.conformance.acls import (
    ACTION,
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CREATE,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    acl,
)

ALICE = "User:alice"
HERE, ELSEWHERE = "127.0.0.1", "192.0.2.1"
TOPICS, MISSING = ("random-rights-a", "random-rights-b"), "random-rights-missing"
GROUPS, NO_GROUP = ("random-rights-g", "random-rights-h"), "random-rights-no-group"
TRANSACTIONS, NO_TRANSACTION = ("random-rights-x", "random-rights-y"), "random-rights-no-transaction"
OF_CLUSTER = "kafka-cluster"
IDEMPOTENT_WRITE = 12
NAMES: dict[int, Sequence[str]] = {
    TOPIC: (*TOPICS, MISSING), GROUP: GROUPS, TRANSACTIONAL_ID: TRANSACTIONS, CLUSTER: (OF_CLUSTER,),
}  # fmt: skip
OPERATIONS: dict[int, Sequence[int]] = {
    TOPIC: (ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    GROUP: (ALL, READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    TRANSACTIONAL_ID: (ALL, WRITE, DESCRIBE),
    CLUSTER: (ALL, CREATE, ALTER, DESCRIBE, ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE),
}
IMPLYING = {DESCRIBE: {READ, WRITE, DELETE, ALTER}, DESCRIBE_CONFIGS: {ALTER_CONFIGS}}


def random_acls(random: Random, prefix: str) -> list[dict[str, Any]]:
    return [_random_acl(random, prefix) for _ in range(random.choice([2, 4, 8, 14]))]


def _random_acl(random: Random, prefix: str) -> dict[str, Any]:
    kind = random.choice([TOPIC, TOPIC, TOPIC, GROUP, GROUP, CLUSTER, CLUSTER, TRANSACTIONAL_ID, TRANSACTIONAL_ID])
    name, pattern, drawn = random.choice(NAMES[kind]), LITERAL, random.random()
    if kind != CLUSTER:
        name = prefix + name
        if drawn < 0.2:
            name, pattern = name[: random.choice([-1, -2, len(prefix)])], PREFIXED
        elif drawn < 0.4:
            name = "*"
    return acl(
        name, random.choice(OPERATIONS[kind]), random.choice([ALLOW] * 4 + [DENY]), resource_type=kind,
        resource_pattern_type=pattern, principal=random.choice([ALICE] * 6 + ["User:*", "User:bob"]),
        host=random.choice(["*"] * 5 + [HERE, ELSEWHERE]),
    )  # fmt: skip


class Draw:
    """A request of alice. The same `random` draws the same for a server with other names."""

    def __init__(
        self, random: Random, prefix: str, topic_ids: dict[str, uuid.UUID], acls: list[dict[str, Any]]
    ) -> None:
        self.random = random
        self.prefix = prefix
        self._topic_ids = topic_ids
        self._acls = acls

    def one(self, labels: Sequence[str]) -> str:
        return self.prefix + self.random.choice(labels)

    def some(self, labels: Sequence[str]) -> list[str]:
        """A name may occur twice."""
        return [self.one(labels) for _ in range(self.random.choice([1, 1, 2, 3]))]

    def each_once(self, labels: Sequence[str]) -> list[str]:
        return sorted({*self.some(labels)})

    def topics(self) -> list[str]:
        return self.each_once(NAMES[TOPIC])

    def is_drawn(self, share: float = 0.5) -> bool:
        return self.random.random() < share

    def id_of(self, topic: str) -> uuid.UUID:
        return self._topic_ids.get(topic.removeprefix(self.prefix), uuid.UUID(int=7))

    def may(self, operation: int, kind: int, name: str) -> bool:
        """A model that looks at every ACL."""
        found = [row for row in self._acls if row["resource_type"] == kind and self._concerns(row, name)]
        denied = any(row["operation"] in {ALL, operation} for row in found if row["permission_type"] == DENY)
        enough = {ALL, operation, *IMPLYING.get(operation, ())}
        return not denied and any(row["operation"] in enough for row in found if row["permission_type"] == ALLOW)

    def _concerns(self, row: dict[str, Any], name: str) -> bool:
        if row["principal"] not in {ALICE, "User:*"} or row["host"] not in {"*", HERE}:
            return False
        if row["resource_pattern_type"] == PREFIXED:
            return name.startswith(row["resource_name"])
        return row["resource_name"] in {"*", name}

    def may_change(self, operation: int, topic: str) -> bool:
        return self.may(operation, CLUSTER, OF_CLUSTER) or self.may(operation, TOPIC, topic)
