"""The audit of denials: a log line for each denied resource of a request, with a bounded rate: clients cause them."""

from __future__ import annotations

import structlog

from gateway.observability.logs import LINES_PER_S, SparseLog
from gateway.security.acls import Requester
from protocol.kafka.acl import AclOperation, ResourceType
from protocol.kafka.errors import ErrorCode

MAX_NAME_CHARACTERS = 249
"""Longer names of resources are cut. A topic name has at most this length; a request may contain longer names."""
MAX_NAMED = LINES_PER_S
"""Denials of one request that are remembered, so that each has one line. There are not more lines in a second."""
DENIED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""By type of resource: the error of a client that has no right to it."""

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


class RequestDenials:
    """The denials of the request of a connection that was denied something last: a resource may have many rows."""

    __slots__ = ("_began_s", "_log", "_named")

    def __init__(self, log: DenialLog) -> None:
        self._log = log
        self._began_s = 0.0
        self._named: set[Denied] = set()

    def denied(self, who: Requester, api: str, began_s: float, denied: Denied) -> None:
        """`began_s` tells requests apart; the parts of a request have the same."""
        if began_s != self._began_s:
            self._began_s = began_s
            self._named.clear()
        operation, resource_type, name = denied
        named = operation, resource_type, name[:MAX_NAME_CHARACTERS]
        if named in self._named:
            return
        if len(self._named) < MAX_NAMED:
            self._named.add(named)
        self._log.denied(who, api, denied)
