"""ACLs and filters of ACLs, as the three ACL APIs encode them."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol, TypeVar

from gateway.requests.call import ClosesConnection
from gateway.security.acls import AclFilter
from protocol.kafka.acl import AclOperation, PatternType, Permission, ResourceType

Code = TypeVar("Code", bound=IntEnum)
UNKNOWN = 0
NO_AUTHORIZER = "No Authorizer is configured."
MAX_CHANGES = 10_000
"""ACLs that one request may change, as in Kafka."""


class _Filter(Protocol):
    """The fields of filters in DescribeAcls and DeleteAcls."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def from_code(kind: type[Code], code: int) -> Code:
    """Return UNKNOWN for an unknown code."""
    return kind(code) if code in set(kind) else kind(UNKNOWN)


def to_filter(asked: _Filter) -> AclFilter:
    """Raises ClosesConnection for a filter with unknown elements, because Kafka cannot parse such a request.

    As in Kafka, only code 0 closes the connection; any other unknown code makes a filter that matches nothing.
    """
    codes = (asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type)
    if UNKNOWN in codes:
        raise ClosesConnection("a filter of ACLs with unknown elements")
    return AclFilter(
        from_code(ResourceType, asked.resource_type_filter),
        from_code(PatternType, asked.pattern_type_filter),
        asked.resource_name_filter,
        asked.principal_filter,
        asked.host_filter,
        from_code(AclOperation, asked.operation),
        from_code(Permission, asked.permission_type),
    )
