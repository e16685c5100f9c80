"""CreateAcls (key 30), v0-v3.

v0 knows only literal patterns; v1 adds prefixed ones (KIP-290); v2 is flexible; v3 adds resources of type USER
(KIP-373).
"""

from __future__ import annotations

from gateway.errors import KafkaError, error_code
from gateway.fan_out import sliced
from gateway.handlers.security.acl_fields import MAX_CHANGES, NO_AUTHORIZER, UNKNOWN, from_code
from gateway.pulsar.errors import PulsarError
from gateway.requests.call import Call, ClosesConnection
from gateway.security.acls import Acl
from gateway.security.records import acl_record
from protocol.kafka.acl import CLUSTER_NAME, AclOperation, PatternType, Permission, ResourceType
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.security import CreateAclsRequest, CreateAclsResponse

_Wanted = CreateAclsRequest.AclCreation
_Row = CreateAclsResponse.AclCreationResult
_PATTERNS = {PatternType.LITERAL, PatternType.PREFIXED}


async def handle(call: Call[CreateAclsRequest]) -> CreateAclsResponse:
    wanted, security = call.request.creations, call.cluster.security
    async for each in sliced(wanted):
        if _is_unknown(each):
            raise ClosesConnection("an ACL with unknown elements")
    if not security.has_acls:
        return _refuse_all(call, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    acls = [_acl(each) async for each in sliced(wanted)]
    if any(_is_any(acl) for acl in acls):  # Kafka's handler fails for the whole request
        text = "The server experienced an unexpected error when processing the request."
        return _refuse_all(call, ErrorCode.UNKNOWN_SERVER_ERROR, text)
    reasons = [_invalid_reason(acl) async for acl in sliced(acls)]
    valid = [acl async for acl, reason in sliced(zip(acls, reasons, strict=True)) if not reason]
    try:
        await security.catch_up()
        new = [acl async for acl in sliced(valid) if acl not in security.state.acls]
        if len(new) > MAX_CHANGES:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"At most {MAX_CHANGES} ACLs may be created at once.")
        records = [acl_record(acl, present=True) async for acl in sliced(dict.fromkeys(new))]
        await security.change(records, call.context.requester)
    except (KafkaError, PulsarError) as error:
        return _refuse_all(call, error_code(error), str(error))
    return CreateAclsResponse(results=[_row(call, reason) async for reason in sliced(reasons)])


def _row(call: Call, reason: str | None) -> _Row:
    if reason is None:
        return _Row(error_code=ErrorCode.NONE)
    call.count_error(ErrorCode.INVALID_REQUEST)
    return _Row(error_code=ErrorCode.INVALID_REQUEST, error_message=reason)


def _refuse_all(call: Call[CreateAclsRequest], code: ErrorCode, text: str) -> CreateAclsResponse:
    call.count_error(code)
    return CreateAclsResponse(results=[_Row(error_code=code, error_message=text)] * len(call.request.creations))


def _is_unknown(wanted: _Wanted) -> bool:
    codes = (wanted.resource_type, wanted.resource_pattern_type, wanted.operation, wanted.permission_type)
    return UNKNOWN in codes


def _acl(wanted: _Wanted) -> Acl:
    return Acl(
        from_code(ResourceType, wanted.resource_type),
        from_code(PatternType, wanted.resource_pattern_type),
        wanted.resource_name,
        wanted.principal,
        wanted.host,
        from_code(AclOperation, wanted.operation),
        from_code(Permission, wanted.permission_type),
    )


def _is_any(acl: Acl) -> bool:
    return (
        acl.resource_type is ResourceType.ANY
        or acl.pattern in {PatternType.ANY, PatternType.MATCH}
        or acl.operation is AclOperation.ANY
        or acl.permission is Permission.ANY
    )


def _invalid_reason(acl: Acl) -> str | None:
    if acl.resource_type is ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.name:
        return "Invalid empty resource name"
    if ":" not in acl.principal:
        return f"Could not parse the principal `{acl.principal}`: a colon separates its type from its name"
    return _unknown_element(acl)


def _unknown_element(acl: Acl) -> str | None:
    if acl.resource_type is ResourceType.UNKNOWN:
        return "Invalid resourceType UNKNOWN"
    if acl.pattern not in _PATTERNS:
        return f"Invalid patternType {acl.pattern.name}"
    if acl.operation is AclOperation.UNKNOWN:
        return "Invalid operation UNKNOWN"
    if acl.permission is Permission.UNKNOWN:
        return "Invalid permissionType UNKNOWN"
    return None
