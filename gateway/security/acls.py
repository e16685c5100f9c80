"""Kafka's ACLs and their decisions, as in StandardAuthorizer (KIP-801).

An ACL allows or denies one principal, from one host, one operation on the resources that match a pattern: one name,
every name (`*`), or all names with a prefix. An ACL that denies takes precedence over all that allow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from protocol.kafka.acl import WILDCARD, AclOperation, PatternType, Permission, ResourceType

EVERYBODY = "User:*"
_IMPLY_DESCRIBE = frozenset(
    {AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
)
_IMPLY_DESCRIBE_CONFIGS = frozenset({AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS})


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


class Acls:
    """A set of ACLs. `version` increases with each change: earlier decisions may be outdated then."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self.version = 0
        self._all: set[Acl] = set()
        self._by_pattern: dict[tuple[ResourceType, PatternType, str], dict[str, set[Acl]]] = {}
        """By pattern, then by principal."""
        self._by_principal: dict[tuple[ResourceType, str], set[Acl]] = {}
        self._prefix_lengths: dict[ResourceType, Counter[int]] = {}
        """The number of prefixed patterns of each length: prefixes of other lengths need no lookup."""
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
        pattern = (acl.resource_type, acl.pattern, acl.name)
        if pattern not in self._by_pattern:
            self._by_pattern[pattern] = {}
            if acl.pattern is PatternType.PREFIXED:
                self._prefix_lengths.setdefault(acl.resource_type, Counter())[len(acl.name)] += 1
        self._by_pattern[pattern].setdefault(acl.principal, set()).add(acl)
        self._by_principal.setdefault((acl.resource_type, acl.principal), set()).add(acl)

    def remove(self, acl: Acl) -> None:
        self.version += 1
        if acl not in self._all:
            return
        self._all.remove(acl)
        self._forget_of_principal(acl)
        pattern = (acl.resource_type, acl.pattern, acl.name)
        principals = self._by_pattern[pattern]
        principals[acl.principal].remove(acl)
        if not principals[acl.principal]:
            del principals[acl.principal]
        if principals:
            return
        del self._by_pattern[pattern]
        if acl.pattern is PatternType.PREFIXED:
            lengths = self._prefix_lengths[acl.resource_type]
            lengths[len(acl.name)] -= 1
            if not lengths[len(acl.name)]:
                del lengths[len(acl.name)]

    def _forget_of_principal(self, acl: Acl) -> None:
        key = (acl.resource_type, acl.principal)
        self._by_principal[key].remove(acl)
        if not self._by_principal[key]:
            del self._by_principal[key]

    def decide(self, who: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool | None:
        """True if the operation is allowed, False if it is denied; None if no ACL matches the resource."""
        allowed = None
        for principals in self._covering(resource_type, name):
            if allowed is None:
                allowed = False
            for principal in (who.principal, EVERYBODY):
                for acl in principals.get(principal, ()):
                    if not _is_about(acl, who.host, operation):
                        continue
                    if acl.permission is Permission.DENY:
                        return False
                    allowed = True
        return allowed

    def _covering(self, resource_type: ResourceType, name: str) -> Iterator[dict[str, set[Acl]]]:
        """The ACLs of the patterns that match a name, by principal."""
        for literal in (name, WILDCARD) if name != WILDCARD else (name,):
            found = self._by_pattern.get((resource_type, PatternType.LITERAL, literal))
            if found is not None:
                yield found
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                found = self._by_pattern.get((resource_type, PatternType.PREFIXED, name[:length]))
                if found is not None:
                    yield found

    def allows_any(self, who: Requester, operation: AclOperation, resource_type: ResourceType) -> bool:
        """True if an ACL allows the operation for some name and none denies it (Authorizer.authorizeByResourceType).

        As in Kafka, only ACLs for exactly this operation count, or for all operations.
        """
        allow: set[tuple[PatternType, str]] = set()
        deny: set[tuple[PatternType, str]] = set()
        for principal in (who.principal, EVERYBODY):
            for acl in self._by_principal.get((resource_type, principal), ()):
                if acl.host in {who.host, WILDCARD} and acl.operation in {operation, AclOperation.ALL}:
                    (allow if acl.permission is Permission.ALLOW else deny).add((acl.pattern, acl.name))
        if (PatternType.LITERAL, WILDCARD) in deny:
            return False
        if (PatternType.LITERAL, WILDCARD) in allow:
            return True
        return any(not _is_dominated(pattern, name, deny) for pattern, name in allow)


def _is_dominated(pattern: PatternType, name: str, deny: set[tuple[PatternType, str]]) -> bool:
    if pattern is PatternType.LITERAL and (pattern, name) in deny:
        return True
    return any((PatternType.PREFIXED, name[:length]) in deny for length in range(1, len(name) + 1))


def _is_about(acl: Acl, host: str, operation: AclOperation) -> bool:
    if acl.host not in {WILDCARD, host}:
        return False
    if acl.operation is AclOperation.ALL or acl.operation is operation:
        return True
    if acl.permission is not Permission.ALLOW:
        return False
    if operation is AclOperation.DESCRIBE:
        return acl.operation in _IMPLY_DESCRIBE
    return operation is AclOperation.DESCRIBE_CONFIGS and acl.operation in _IMPLY_DESCRIBE_CONFIGS


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
