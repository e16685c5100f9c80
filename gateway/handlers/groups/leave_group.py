"""LeaveGroup (key 13), v0-v5. v1 throttle time; v3 several members, static ones too; v4 flexible; v5 reason."""

from __future__ import annotations

from coordinator.group.messages import LeaveRequest, LeavingMember
from gateway.requests.call import Call
from protocol.kafka.messages.groups import LeaveGroupRequest, LeaveGroupResponse

SEVERAL_VERSION = 3


def handle(call: Call[LeaveGroupRequest]) -> LeaveGroupResponse:
    request = call.request
    members = _members(call)
    asked = LeaveRequest(request.group_id, members)
    answer = call.cluster.groups.run(asked.group_id, lambda coordinator, now_ms: coordinator.leave(asked, now_ms))
    if call.version < SEVERAL_VERSION:
        return LeaveGroupResponse(error_code=answer.error or next(iter(answer.member_errors), 0))
    row = LeaveGroupResponse.MemberResponse
    return LeaveGroupResponse(
        error_code=answer.error,
        members=[
            row(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error)
            for member, error in zip(members, answer.member_errors, strict=False)  # None if all failed.
        ],
    )


def _members(call: Call[LeaveGroupRequest]) -> list[LeavingMember]:
    request = call.request
    if call.version < SEVERAL_VERSION:
        return [LeavingMember(request.member_id)]
    return [LeavingMember(each.member_id, each.group_instance_id, each.reason) for each in request.members]
