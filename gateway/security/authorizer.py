"""Who may do what: the interface, and Kafka's ACLs behind it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from gateway.security.acls import Requester
from gateway.security.state import SecurityState
from protocol.kafka.acl import AclOperation, ResourceType

_ANY_NAME = "hardcode"
"""Kafka asks for it: who may use a name that nobody uses may use any, super users among them."""


class Authorizer(Protocol):
    @property
    def version(self) -> int:
        """Rises when what was decided before may not hold any more."""

    def allows(self, who: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool: ...

    def allows_any(self, who: Requester, operation: AclOperation, resource_type: ResourceType) -> bool:
        """On at least one resource of the type."""


class AclAuthorizer:
    """Kafka's StandardAuthorizer. Denies everything while the ACLs are not loaded, except to super users."""

    def __init__(self, state: SecurityState, super_users: Collection[str], *, allow_everyone: bool) -> None:
        """`allow_everyone` decides of resources without ACLs (`allow.everyone.if.no.acl.found`)."""
        self._state = state
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone

    @property
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
