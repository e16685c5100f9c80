"""What a client may do, and how much of it."""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol

from protocol.kafka.acl import AclOperation

CLUSTER_OPERATIONS = frozenset(
    {
        AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.IDEMPOTENT_WRITE,
    }
)  # fmt: skip
TOPIC_OPERATIONS = frozenset(
    {
        AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER,
        AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS,
    }
)  # fmt: skip
GROUP_OPERATIONS = frozenset({AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE})


class Policy(Protocol):
    """Asked with each request."""

    def cluster_operations(self) -> Set[AclOperation]: ...

    def topic_operations(self, topic: str) -> Set[AclOperation]: ...

    def group_operations(self, group_id: str) -> Set[AclOperation]: ...

    def throttle_time_ms(self, api_name: str) -> int:
        """How long the client is to wait behind the answer to this request; 0 if it may go on."""


class AllAllowed:
    """Without an authorizer and quotas."""

    def cluster_operations(self) -> Set[AclOperation]:
        return CLUSTER_OPERATIONS

    def topic_operations(self, topic: str) -> Set[AclOperation]:
        return TOPIC_OPERATIONS

    def group_operations(self, group_id: str) -> Set[AclOperation]:
        return GROUP_OPERATIONS

    def throttle_time_ms(self, api_name: str) -> int:
        return 0


ALL_ALLOWED = AllAllowed()
