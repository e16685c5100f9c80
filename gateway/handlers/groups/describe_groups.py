"""DescribeGroups (key 15), v0-v6.

v1 throttle time; v3 authorized operations; v4 static members; v5 flexible; v6 errors have messages, and a group that
does not exist gets an error instead of the state Dead (KIP-1043).
"""

from __future__ import annotations

from functools import partial

from coordinator.group.classic.states import ClassicGroupState
from coordinator.group.messages import DescribedGroup
from gateway.requests.call import Call
from gateway.requests.repeated import LargeRows, answer_each
from protocol.kafka.acl import NOT_ASKED, bit_field
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import DescribeGroupsRequest, DescribeGroupsResponse

NOT_FOUND_VERSION = 6
_Row = DescribeGroupsResponse.DescribedGroup
_ROW_BYTES, _MEMBER_BYTES = 64, 32
"""About their sizes in the answer, without ids."""


async def handle(call: Call[DescribeGroupsRequest]) -> DescribeGroupsResponse:
    def failed(error: ErrorCode, group_id: str) -> _Row:
        return _row(call, DescribedGroup(error, group_id))

    refuse = partial(failed, ErrorCode.INVALID_REQUEST)
    rows = await answer_each(
        call.request.groups,
        lambda group_id: _row(call, _describe(call, group_id)),
        refuse,
        LargeRows(_bytes_of, partial(failed, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), refuse),
    )
    return DescribeGroupsResponse(groups=rows)


def _bytes_of(row: _Row) -> int:
    return _ROW_BYTES + len(row.group_id) + sum(map(_bytes_of_member, row.members))


def _bytes_of_member(member: _Row.DescribedGroupMember) -> int:
    texts = (member.member_id, member.group_instance_id, member.client_id, member.client_host)
    data = len(member.member_metadata) + len(member.member_assignment)
    return _MEMBER_BYTES + sum(len(each or "") for each in texts) + data


def _describe(call: Call, group_id: str) -> DescribedGroup:
    return call.cluster.groups.run(group_id, lambda coordinator, now_ms: coordinator.describe_group(group_id))


def _row(call: Call[DescribeGroupsRequest], group: DescribedGroup) -> _Row:
    error = group.error
    if call.version >= NOT_FOUND_VERSION and group.state == ClassicGroupState.DEAD.value:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    operations = call.context.policy.group_operations(group.group_id)
    asked = error is ErrorCode.NONE and call.request.include_authorized_operations
    call.count_error(error)
    return _Row(
        error_code=error,
        error_message=group.message if error is ErrorCode.GROUP_ID_NOT_FOUND else None,
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[
            _Row.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
        authorized_operations=bit_field(operations) if asked else NOT_ASKED,
    )
