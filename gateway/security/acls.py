"""Kafka's ACLs and their decisions, as in StandardAuthorizer (KIP-801).

An ACL allows or denies one principal, from one host, one operation on the resources that match a pattern: one name,
every name (`*`), or all names with a prefix. An ACL that denies takes precedence over all that allow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from gateway.security.resource_patterns import ResourcePatterns
from protocol.kafka.acl import WILDCARD, AclOperation, PatternType, Permission, ResourceType

EVERYBODY = "User:*"
_IMPLYING = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
"""Who may do one of these may do the operation, too. A denial of one of these does not deny it."""
_ALLOWING = {operation: (operation, AclOperation.ALL, *_IMPLYING.get(operation, ())) for operation in AclOperation}
MAX_KNOWN = 1_000
"""Answers of `allows_any` that are remembered."""


class Acl(NamedTuple):
    """Kafka's AclBinding. `principal` is written as `User:alice`."""

    resource_type: ResourceType
    pattern: PatternType
    name: str
    principal: str
    host: str
    operation: AclOperation
    permission: Permission


class Requester(NamedTuple):
    """The client of a request: `principal` as ACLs name it, `host` an address without a port."""

    principal: str
    host: str


class _Rights:
    """What one principal may do from one host, and what is denied to it, by operation."""

    __slots__ = ("allowed", "denied")

    def __init__(self) -> None:
        self.allowed: dict[AclOperation, ResourcePatterns] = {}
        self.denied: dict[AclOperation, ResourcePatterns] = {}

    def __bool__(self) -> bool:
        return bool(self.allowed or self.denied)

    def by_operation(self, permission: Permission) -> dict[AclOperation, ResourcePatterns]:
        return self.allowed if permission is Permission.ALLOW else self.denied


class Acls:
    """A set of ACLs. `version` increases with each change: earlier decisions may be outdated then.

    A decision takes the same few steps however many ACLs there are: nobody can make the requests of others slow by
    creating many.
    """

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self.version = 0
        self._all: set[Acl] = set()
        self._rights: dict[tuple[ResourceType, str, str], _Rights] = {}
        """By resource type, principal and host."""
        self._times: Counter[tuple[ResourceType, PatternType, str]] = Counter()
        """The number of ACLs with each pattern."""
        self._patterns: dict[ResourceType, ResourcePatterns] = {}
        """These patterns by type: resources that match none of them have no ACL."""
        self._allows_any: dict[tuple[Requester, AclOperation, ResourceType], bool] = {}
        self._allows_any_version = 0
        for acl in acls:
            self.add(acl)

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._all

    def add(self, acl: Acl) -> None:
        self.version += 1
        if acl in self._all:
            return
        self._all.add(acl)
        rights = self._rights.setdefault((acl.resource_type, acl.principal, acl.host), _Rights())
        rights.by_operation(acl.permission).setdefault(acl.operation, ResourcePatterns()).add(acl.pattern, acl.name)
        pattern = (acl.resource_type, acl.pattern, acl.name)
        if not self._times[pattern]:
            self._patterns.setdefault(acl.resource_type, ResourcePatterns()).add(acl.pattern, acl.name)
        self._times[pattern] += 1

    def remove(self, acl: Acl) -> None:
        self.version += 1
        if acl not in self._all:
            return
        self._all.remove(acl)
        self._remove_right(acl)
        pattern = (acl.resource_type, acl.pattern, acl.name)
        self._times[pattern] -= 1
        if not self._times[pattern]:
            del self._times[pattern]
            self._patterns[acl.resource_type].remove(acl.pattern, acl.name)

    def _remove_right(self, acl: Acl) -> None:
        key = (acl.resource_type, acl.principal, acl.host)
        operations = self._rights[key].by_operation(acl.permission)
        operations[acl.operation].remove(acl.pattern, acl.name)
        if not operations[acl.operation]:
            del operations[acl.operation]
        if not self._rights[key]:
            del self._rights[key]

    def decide(self, who: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool | None:
        """True if the operation is allowed, False if it is denied; None if no ACL matches the resource."""
        rights = self._rights_of(who, resource_type)
        for each in rights:
            for denied in _of(each.denied, (operation, AclOperation.ALL)):
                if denied.matches(name):
                    return False
        for each in rights:
            for allowed in _of(each.allowed, _ALLOWING[operation]):
                if allowed.matches(name):
                    return True
        patterns = self._patterns.get(resource_type)
        return False if patterns is not None and patterns.matches(name) else None

    def _rights_of(self, who: Requester, resource_type: ResourceType) -> list[_Rights]:
        found = [
            self._rights.get((resource_type, principal, host))
            for principal in (who.principal, EVERYBODY)
            for host in (who.host, WILDCARD)
        ]
        return [each for each in found if each is not None]

    def allows_any(self, who: Requester, operation: AclOperation, resource_type: ResourceType) -> bool:
        """True if an ACL allows the operation for some name and none denies it (Authorizer.authorizeByResourceType).

        As in Kafka, only ACLs for exactly this operation count, or for all operations.
        """
        if self._allows_any_version != self.version or len(self._allows_any) >= MAX_KNOWN:
            self._allows_any.clear()
            self._allows_any_version = self.version
        key = (who, operation, resource_type)
        if key not in self._allows_any:
            operations, rights = (operation, AclOperation.ALL), self._rights_of(who, resource_type)
            denied = [patterns for each in rights for patterns in _of(each.denied, operations)]
            self._allows_any[key] = any(
                allowed.are_beyond(denied) for each in rights for allowed in _of(each.allowed, operations)
            )
        return self._allows_any[key]


def _of(
    patterns: Mapping[AclOperation, ResourcePatterns], operations: Iterable[AclOperation]
) -> Iterator[ResourcePatterns]:
    return (patterns[operation] for operation in operations if operation in patterns)


class AclFilter(NamedTuple):
    """Kafka's AclBindingFilter: None matches any value."""

    resource_type: ResourceType
    pattern: PatternType
    name: str | None
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: Permission

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in {ResourceType.ANY, acl.resource_type}
            and self._matches_name(acl)
            and self.principal in {None, acl.principal}
            and self.host in {None, acl.host}
            and self.operation in {AclOperation.ANY, acl.operation}
            and self.permission in {Permission.ANY, acl.permission}
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern not in {PatternType.ANY, PatternType.MATCH, acl.pattern}:
            return False
        if self.name is None:
            return True
        if self.pattern is not PatternType.MATCH:
            return self.name == acl.name
        if acl.pattern is PatternType.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name in {self.name, WILDCARD}
