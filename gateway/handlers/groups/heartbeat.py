"""Heartbeat (key 12), v0-v4. v1 throttle time; v3 static members; v4 flexible."""

from __future__ import annotations

from coordinator.group import messages
from gateway.requests.call import Call
from protocol.kafka.messages.groups import HeartbeatRequest, HeartbeatResponse


def handle(call: Call[HeartbeatRequest]) -> HeartbeatResponse:
    request = call.request
    asked = messages.HeartbeatRequest(
        request.group_id, request.generation_id, request.member_id, request.group_instance_id
    )
    error = call.cluster.groups.run(asked.group_id, lambda coordinator, now_ms: coordinator.heartbeat(asked, now_ms))
    return HeartbeatResponse(error_code=error)
