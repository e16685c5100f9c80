"""LeaveGroup (key 13), v0-v5. v1 throttle time; v3 several members, static ones too; v4 flexible; v5 reason."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.group.messages import LeaveRequest, LeaveResponse, LeavingMember
from gateway.fan_out import Slices
from gateway.requests.call import Call
from gateway.requests.reply import Reply
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import LeaveGroupRequest, LeaveGroupResponse

SEVERAL_VERSION = 3
AT_ONCE = 100
"""Members that leave without giving others their turn."""
_Row = LeaveGroupResponse.MemberResponse


def handle(call: Call[LeaveGroupRequest]) -> Reply:
    request = call.request
    if call.version < SEVERAL_VERSION:
        answer = _leave(call, [LeavingMember(request.member_id)])
        return Reply(LeaveGroupResponse(error_code=answer.error or next(iter(answer.member_errors), 0)))
    if len(request.members) > AT_ONCE:
        return Reply.after(_leave_in_slices(call))
    error, rows = _left(call, request.members)
    return Reply(LeaveGroupResponse(error_code=error, members=rows))


async def _leave_in_slices(call: Call[LeaveGroupRequest]) -> Reply:
    """An error of the group is that of the request, as if no member had left."""
    slices, rows, members = Slices(), list[_Row](), call.request.members
    for start in range(0, len(members), AT_ONCE):
        await slices.pause()
        error, some = _left(call, members[start : start + AT_ONCE])
        if error:
            return Reply(LeaveGroupResponse(error_code=error))
        rows += some
    return Reply(LeaveGroupResponse(members=rows))


def _left(
    call: Call[LeaveGroupRequest], members: Sequence[LeaveGroupRequest.MemberIdentity]
) -> tuple[ErrorCode, list[_Row]]:
    """The error of the group, or the rows of these members."""
    answer = _leave(call, [LeavingMember(each.member_id, each.group_instance_id, each.reason) for each in members])
    rows = [
        _Row(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error)
        for member, error in zip(members, answer.member_errors, strict=False)  # None if all failed.
    ]
    return answer.error, rows


def _leave(call: Call[LeaveGroupRequest], members: Sequence[LeavingMember]) -> LeaveResponse:
    asked = LeaveRequest(call.request.group_id, members)
    return call.cluster.groups.run(asked.group_id, lambda coordinator, now_ms: coordinator.leave(asked, now_ms))
