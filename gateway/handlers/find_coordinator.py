"""FindCoordinator (key 10), v0-v6. v1 key type; v3 flexible; v4 several keys (KIP-699); v6 share groups' key type.

Groups are not served yet: their coordinator is not available, which clients retry. Transactions are refused.
"""

from __future__ import annotations

from kafka.protocol.metadata import FindCoordinatorResponse

from gateway.handlers.call import Call, Response
from protocol.kafka.errors import ErrorCode

GROUP, TRANSACTION, SHARE = 0, 1, 2
SHARE_VERSION = 6


def handle(call: Call) -> Response:
    request = call.request
    code, text = _answer(call.version, request.key_type)
    call.count_error(code)
    if call.version < 4:
        return FindCoordinatorResponse(error_code=code, error_message=text, node_id=-1, host="", port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=code, error_message=text
            )
            for key in request.coordinator_keys or ()
        ]
    )


def _answer(version: int, key_type: int) -> tuple[ErrorCode, str]:
    if key_type == GROUP:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, "groups are not served by this gateway yet"
    if key_type == SHARE and version >= SHARE_VERSION:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, "share groups are not served by this gateway"
    if key_type == TRANSACTION:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not served by this gateway"
    return ErrorCode.INVALID_REQUEST, f"unknown coordinator key type {key_type}"
