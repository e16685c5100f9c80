"""The subjects of ACLs with Kafka's codes: https://kafka.apache.org/protocol (AclOperation, ResourceType)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class ResourceType(IntEnum):
    """UNKNOWN and ANY are only for filters. Clients may also send them where they have no meaning."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    """For filters: every pattern that covers the name, as a literal, as a prefix or as `*`."""
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(IntEnum):
    """Kafka's AclPermissionType."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME = "kafka-cluster"
"""The only resource of type CLUSTER."""
WILDCARD = "*"
"""A literal pattern that means every name; as a host, every host."""
NOT_ASKED = -(2**31)
"""The value in a response if the client did not request the authorized operations."""


def bit_field(operations: Iterable[AclOperation]) -> int:
    """The bit field of authorized operations in responses."""
    return sum(1 << operation for operation in operations)
