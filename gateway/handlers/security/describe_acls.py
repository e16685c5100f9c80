"""DescribeAcls (key 29), v0-v3.

v0 knows only literal patterns; v1 adds prefixed ones (KIP-290); v2 is flexible; v3 adds resources of type USER
(KIP-373).
"""

from __future__ import annotations

from gateway.fan_out import in_steps, sliced, sorted_in_slices
from gateway.handlers.security.acl_fields import to_filter
from gateway.requests.call import Call
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.security import DescribeAclsRequest, DescribeAclsResponse

_Resource = DescribeAclsResponse.DescribeAclsResource


async def handle(call: Call[DescribeAclsRequest]) -> DescribeAclsResponse:
    wanted, security = to_filter(call.request), call.cluster.security
    if not security.has_acls:
        call.count_error(ErrorCode.SECURITY_DISABLED)
        text = "No Authorizer is configured on the broker"
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=text)
    resources: dict[tuple[int, int, str], _Resource] = {}
    every = [*security.state.acls]
    found = [acl async for step in in_steps(every) for acl in step if wanted.matches(acl)]
    async for acl in sliced(await sorted_in_slices(found)):
        key = (acl.resource_type, acl.pattern, acl.name)
        if key not in resources:
            resources[key] = _Resource(
                resource_type=acl.resource_type, resource_name=acl.name, pattern_type=acl.pattern
            )
        resources[key].acls.append(
            _Resource.AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
        )
    return DescribeAclsResponse(resources=[*resources.values()])
