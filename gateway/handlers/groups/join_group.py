"""JoinGroup (key 11), v0-v9.

v0 rebalances within the session timeout; v1 rebalance timeout; v2 throttle time; v4 a new member gets its id first
(KIP-394); v5 static members (KIP-345); v6 flexible; v7 protocol type and null protocol names; v8 reason (KIP-800);
v9 the leader may skip the assignment (KIP-814).
"""

from __future__ import annotations

from functools import partial

from coordinator.group.messages import JoinRequest, JoinResponse
from gateway.requests.call import Call
from gateway.requests.reply import Reply
from gateway.requests.waiting_members import without_request
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import JoinGroupRequest, JoinGroupResponse

REBALANCE_TIMEOUT_VERSION, KNOWN_ID_VERSION, NULL_NAME_VERSION, SKIP_ASSIGNMENT_VERSION = 1, 4, 7, 9
MAX_PROTOCOLS = 1_000
"""The coordinator compares the protocols of all members. Clients have a handful; Kafka has no such limit."""


def handle(call: Call[JoinGroupRequest]) -> Reply:
    if len(call.request.protocols) > MAX_PROTOCOLS:
        return Reply(_response(call.version, JoinResponse(ErrorCode.INVALID_REQUEST, call.request.member_id)))
    asked = _request(call)
    joining = call.cluster.groups.ask(
        asked.group_id,
        lambda coordinator, now_ms, reply: coordinator.join(asked, now_ms, reply),
        partial(_response, call.version),
    )
    return without_request(call, joining)


def _request(call: Call[JoinGroupRequest]) -> JoinRequest:
    request, version = call.request, call.version
    own_timeout = version >= REBALANCE_TIMEOUT_VERSION
    return JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        client_id=call.client_id or "",
        client_host=call.client.host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if own_timeout else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=[(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols],
        group_instance_id=request.group_instance_id,
        require_member_id=version >= KNOWN_ID_VERSION and request.group_instance_id is None,
        can_skip_assignment=version >= SKIP_ASSIGNMENT_VERSION,
        reason=request.reason,
    )


def _response(version: int, answer: JoinResponse) -> JoinGroupResponse:
    member = JoinGroupResponse.JoinGroupResponseMember
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name or (None if version >= NULL_NAME_VERSION else ""),
        leader=answer.leader_id,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            member(member_id=each.member_id, group_instance_id=each.group_instance_id, metadata=each.metadata)
            for each in answer.members
        ],
    )
