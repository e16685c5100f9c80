"""DeleteAcls (key 31), v0-v3.

v0 knows only literal patterns; v1 adds prefixed ones (KIP-290); v2 is flexible; v3 adds resources of type USER
(KIP-373).
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.errors import KafkaError, error_code
from gateway.fan_out import Slices, sliced
from gateway.handlers.security.acl_fields import MAX_CHANGES, NO_AUTHORIZER, UNKNOWN, to_filter
from gateway.pulsar.errors import PulsarError
from gateway.requests.call import Call
from gateway.security.acls import Acl, AclFilter
from gateway.security.records import acl_record
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.security import DeleteAclsRequest, DeleteAclsResponse

_Row = DeleteAclsResponse.DeleteAclsFilterResult


async def handle(call: Call[DeleteAclsRequest]) -> DeleteAclsResponse:
    security = call.cluster.security
    filters = [to_filter(each) async for each in sliced(call.request.filters)]
    if not security.has_acls:
        return _refuse_all(call, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    try:
        await security.catch_up()
        found = await _found(security.state.acls, filters)
        gone = dict.fromkeys(acl for acls in found for acl in acls)
        if len(gone) > MAX_CHANGES:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"Cannot remove more than {MAX_CHANGES} ACLs at once.")
        records = [acl_record(acl, present=False) async for acl in sliced(gone)]
        await security.change(records, call.context.requester)
    except (KafkaError, PulsarError) as error:
        return _refuse_all(call, error_code(error), str(error))
    return DeleteAclsResponse(filter_results=[_row(*each) async for each in sliced(zip(filters, found, strict=True))])


async def _found(acls: Iterable[Acl], filters: list[AclFilter]) -> list[list[Acl]]:
    """The ACLs that each filter matches."""
    slices, found = Slices(), list[list[Acl]]()
    for wanted in filters:
        await slices.pause()
        found.append(sorted(filter(wanted.matches, acls)))
    return found


def _row(wanted: AclFilter, found: list[Acl]) -> _Row:
    unknown = None
    if UNKNOWN in {wanted.resource_type, wanted.pattern}:
        unknown = "Unknown patternFilter."
    elif UNKNOWN in {wanted.operation, wanted.permission}:
        unknown = "Unknown entryFilter."
    if unknown is not None:
        return _Row(error_code=ErrorCode.INVALID_REQUEST, error_message=unknown)
    return _Row(error_message=None, matching_acls=[_matching(acl) for acl in found])


def _matching(acl: Acl) -> _Row.DeleteAclsMatchingAcl:
    return _Row.DeleteAclsMatchingAcl(
        error_message=None, resource_type=acl.resource_type, resource_name=acl.name, pattern_type=acl.pattern,
        principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission,
    )  # fmt: skip


def _refuse_all(call: Call[DeleteAclsRequest], code: ErrorCode, text: str) -> DeleteAclsResponse:
    call.count_error(code)
    rows = [_Row(error_code=code, error_message=text)] * len(call.request.filters)
    return DeleteAclsResponse(filter_results=rows)
