"""FindCoordinator (key 10), v0-v6. v1 key type; v3 flexible; v4 several keys (KIP-699); v6 share groups' key type.

This gateway coordinates every group, once `__consumer_offsets` is there. Transactions are refused.
"""

from __future__ import annotations

from kafka.protocol.metadata import FindCoordinatorResponse

from gateway.handlers.call import Call, Node, Response
from protocol.kafka.errors import ErrorCode

GROUP, TRANSACTION, SHARE = 0, 1, 2
SEVERAL_VERSION, SHARE_VERSION = 4, 6
NOBODY = Node(-1, "", -1)


def handle(call: Call) -> Response:
    request = call.request
    code, text = _answer(call, request.key_type)
    call.count_error(code)
    node = NOBODY if code else call.services.node
    if call.version < SEVERAL_VERSION:
        return FindCoordinatorResponse(
            error_code=code, error_message=text, node_id=node.node_id, host=node.host, port=node.port
        )
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key, node_id=node.node_id, host=node.host, port=node.port, error_code=code, error_message=text
            )
            for key in request.coordinator_keys or ()
        ]
    )


def _answer(call: Call, key_type: int) -> tuple[ErrorCode, str]:
    if key_type == GROUP:
        if call.services.groups.ready:
            return ErrorCode.NONE, "" if call.version >= SEVERAL_VERSION else "NONE"  # as Kafka has it
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, "the topic of the groups is being prepared"
    if key_type == SHARE and call.version >= SHARE_VERSION:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, "share groups are not served by this gateway"
    if key_type == TRANSACTION:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not served by this gateway"
    return ErrorCode.INVALID_REQUEST, f"unknown coordinator key type {key_type}"
