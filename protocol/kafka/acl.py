"""What a right is about, by Kafka's codes: https://kafka.apache.org/protocol (AclOperation, ResourceType)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class ResourceType(IntEnum):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class AclOperation(IntEnum):
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


NOT_ASKED = -(2**31)
"""Authorized operations that the client did not ask for."""


def bit_field(operations: Iterable[AclOperation]) -> int:
    """As responses hold authorized operations."""
    return sum(1 << operation for operation in operations)
