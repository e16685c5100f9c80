"""Authorization: the interface, and its implementation with Kafka's ACLs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from gateway.security.acls import Requester
from gateway.security.state import SecurityState
from protocol.kafka.acl import AclOperation, ResourceType

_ANY_NAME = "hardcode"
"""Kafka checks this name, which nobody uses: a principal that may use it may use any name. Super users may."""


class Authorizer(Protocol):
    def version(self) -> int:
        """Increases when earlier decisions may be outdated."""

    def allows(self, who: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool: ...

    def allows_any(self, who: Requester, operation: AclOperation, resource_type: ResourceType) -> bool:
        """True if the operation is allowed on at least one resource of the type."""


class AclAuthorizer:
    """Kafka's StandardAuthorizer. While ACLs are not loaded or unreadable, it denies all but super users."""

    def __init__(self, state: SecurityState, super_users: Collection[str], *, allow_everyone: bool) -> None:
        """`allow_everyone` decides for resources without ACLs (`allow.everyone.if.no.acl.found`)."""
        self._state = state
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone

    def version(self) -> int:
        return self._state.acls.version

    def allows(self, who: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        if who.principal in self._super_users:
            return True
        if not self._state.knows_all_acls:
            return False
        allowed = self._state.acls.decide(who, operation, resource_type, name)
        return self._allow_everyone if allowed is None else allowed

    def allows_any(self, who: Requester, operation: AclOperation, resource_type: ResourceType) -> bool:
        if self.allows(who, operation, resource_type, _ANY_NAME):
            return True
        return self._state.knows_all_acls and self._state.acls.allows_any(who, operation, resource_type)
