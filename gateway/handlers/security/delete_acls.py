"""DeleteAcls (key 31), v0-v3.

v0 knows only literal patterns; v1 adds prefixed ones (KIP-290); v2 is flexible; v3 adds resources of type USER
(KIP-373).
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.errors import KafkaError, error_code
from gateway.fan_out import in_steps, sliced, sorted_in_slices
from gateway.handlers.security.acl_fields import MAX_CHANGES, NO_AUTHORIZER, UNKNOWN, to_filter
from gateway.pulsar.errors import PulsarError
from gateway.requests.call import Call
from gateway.requests.repeated import MAX_ANSWER_BYTES
from gateway.security.acls import Acl, AclFilter
from gateway.security.records import acl_record
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.security import DeleteAclsRequest, DeleteAclsResponse

_Row = DeleteAclsResponse.DeleteAclsFilterResult
_ACL_BYTES = 16
"""Of an ACL in the answer, without names."""


async def handle(call: Call[DeleteAclsRequest]) -> DeleteAclsResponse:
    security = call.cluster.security
    filters = [to_filter(each) async for each in sliced(call.request.filters)]
    if not security.has_acls:
        return _refuse_all(call, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    try:
        await security.catch_up()
        found = await _found(security.state.acls, filters)
        gone = dict.fromkeys([acl for acls in found.values() async for acl in sliced(acls)])
        records = [acl_record(acl, present=False) async for acl in sliced(gone)]
        await security.change(records, call.context.requester)
    except (KafkaError, PulsarError) as error:
        return _refuse_all(call, error_code(error), str(error))
    rows = {wanted: await _row(wanted, acls) async for wanted, acls in sliced(found.items())}
    return DeleteAclsResponse(filter_results=[rows[wanted] async for wanted in sliced(filters)])


async def _found(acls: Iterable[Acl], filters: list[AclFilter]) -> dict[AclFilter, list[Acl]]:
    """The ACLs that each filter matches. Raises KafkaError when the answer, which lists them for each filter, would be
    too large: a filter may be there again and again."""
    every, rows, size_bytes = [*acls], 0, 0
    found: dict[AclFilter, list[Acl]] = {}
    sizes_bytes: dict[AclFilter, int] = {}
    async for wanted in sliced(filters):
        if wanted not in found:
            found[wanted] = [acl async for step in in_steps(every) for acl in step if wanted.matches(acl)]
        rows += len(found[wanted])
        if rows > MAX_CHANGES:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"Cannot remove more than {MAX_CHANGES} ACLs at once.")
        if wanted not in sizes_bytes:
            sizes_bytes[wanted] = sum(map(_bytes_of, found[wanted]))
        size_bytes += sizes_bytes[wanted]
        if size_bytes > MAX_ANSWER_BYTES:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"Cannot list more than {MAX_ANSWER_BYTES} bytes of ACLs.")
    return {wanted: await sorted_in_slices(matching) async for wanted, matching in sliced(found.items())}


def _bytes_of(acl: Acl) -> int:
    """About its size in the answer."""
    return _ACL_BYTES + len(acl.name) + len(acl.principal) + len(acl.host)


async def _row(wanted: AclFilter, found: list[Acl]) -> _Row:
    unknown = None
    if UNKNOWN in {wanted.resource_type, wanted.pattern}:
        unknown = "Unknown patternFilter."
    elif UNKNOWN in {wanted.operation, wanted.permission}:
        unknown = "Unknown entryFilter."
    if unknown is not None:
        return _Row(error_code=ErrorCode.INVALID_REQUEST, error_message=unknown)
    return _Row(error_message=None, matching_acls=[_matching(acl) async for acl in sliced(found)])


def _matching(acl: Acl) -> _Row.DeleteAclsMatchingAcl:
    return _Row.DeleteAclsMatchingAcl(
        error_message=None, resource_type=acl.resource_type, resource_name=acl.name, pattern_type=acl.pattern,
        principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission,
    )  # fmt: skip


def _refuse_all(call: Call[DeleteAclsRequest], code: ErrorCode, text: str) -> DeleteAclsResponse:
    call.count_error(code)
    rows = [_Row(error_code=code, error_message=text)] * len(call.request.filters)
    return DeleteAclsResponse(filter_results=rows)
