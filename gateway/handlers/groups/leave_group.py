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


def handle(call: Call[LeaveGroupRequest]) -> Reply:
    members = _members(call)
    if len(members) > AT_ONCE:
        return Reply.after(_leave_in_slices(call, members))
    return Reply(_response(call, members, _leave(call, members)))


async def _leave_in_slices(call: Call[LeaveGroupRequest], members: Sequence[LeavingMember]) -> Reply:
    slices, errors = Slices(), list[ErrorCode]()
    for start in range(0, len(members), AT_ONCE):
        await slices.pause()
        answer = _leave(call, members[start : start + AT_ONCE])
        if answer.error:
            return Reply(_response(call, members, answer))
        errors += answer.member_errors
    return Reply(_response(call, members, LeaveResponse(ErrorCode.NONE, errors)))


def _leave(call: Call[LeaveGroupRequest], members: Sequence[LeavingMember]) -> LeaveResponse:
    asked = LeaveRequest(call.request.group_id, members)
    return call.cluster.groups.run(asked.group_id, lambda coordinator, now_ms: coordinator.leave(asked, now_ms))


def _response(
    call: Call[LeaveGroupRequest], members: Sequence[LeavingMember], answer: LeaveResponse
) -> LeaveGroupResponse:
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
