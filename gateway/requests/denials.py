"""The audit of denials: a log line for each denial, with a bounded rate, because clients cause them."""

from __future__ import annotations

import structlog

from gateway.observability.logs import LINES_PER_S, SparseLog
from gateway.security.acls import Requester
from protocol.kafka.acl import AclOperation, ResourceType
from protocol.kafka.errors import ErrorCode

MAX_NAME_CHARACTERS = 249
"""Longer names of resources are cut. A topic name has at most this length; a request may contain longer names."""
DENIALS = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)  # fmt: skip

Denied = tuple[AclOperation, ResourceType, str]


class DenialLog:
    """Shared by all connections of a gateway."""

    def __init__(self) -> None:
        self._log = SparseLog(structlog.get_logger(), lines=LINES_PER_S)

    def denied(self, who: Requester, api: str, denied: Denied) -> None:
        operation, resource_type, name = denied
        self._log.info(
            "denied", principal=who.principal, address=who.host, api=api, operation=operation.name,
            resource_type=resource_type.name, resource=name[:MAX_NAME_CHARACTERS],
        )  # fmt: skip
