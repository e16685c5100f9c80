"""SyncGroup (key 14), v0-v5. v1 throttle time; v3 static members; v4 flexible; v5 protocol type and name (KIP-559)."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.group.messages import SyncRequest, SyncResponse
from gateway.fan_out import Slices
from gateway.requests.call import Call
from gateway.requests.reply import Reply
from gateway.requests.waiting_members import without_request
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import SyncGroupRequest, SyncGroupResponse

PROTOCOL_VERSION = 5
AT_ONCE = 100
"""The assignments that are read without giving others their turn."""


def handle(call: Call[SyncGroupRequest]) -> Reply:
    request = call.request
    if call.version >= PROTOCOL_VERSION and (request.protocol_type is None or request.protocol_name is None):
        return Reply(_response(SyncResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)))
    if len(request.assignments) > AT_ONCE:
        return Reply.after(_sync_large(call))
    return _sync(call, {each.member_id: bytes(each.assignment) for each in request.assignments})


async def _sync_large(call: Call[SyncGroupRequest]) -> Reply:
    slices, assignments = Slices(), dict[str, bytes]()
    for number, each in enumerate(call.request.assignments):
        if number % AT_ONCE == 0:
            await slices.pause()
        assignments[each.member_id] = bytes(each.assignment)
    return _sync(call, assignments)


def _sync(call: Call[SyncGroupRequest], assignments: Mapping[str, bytes]) -> Reply:
    request = call.request
    asked = SyncRequest(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        assignments=assignments,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
    )
    syncing = call.cluster.groups.ask(
        asked.group_id, lambda coordinator, now_ms, reply: coordinator.sync(asked, now_ms, reply), _response
    )
    return without_request(call, syncing)


def _response(answer: SyncResponse) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )
