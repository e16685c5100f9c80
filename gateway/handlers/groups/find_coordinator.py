"""FindCoordinator (key 10), v0-v6. v1 key type; v3 flexible; v4 several keys (KIP-699); v6 share groups' key type.

A group's coordinator is the leader of its partition of `__consumer_offsets`. Transactions are refused.
"""

from __future__ import annotations

from gateway.requests.brokers import NOBODY, Brokers
from gateway.requests.call import Call
from gateway.requests.cluster import Node
from gateway.topics.topic_names import CONSUMER_OFFSETS
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION, SHARE = 0, 1, 2
SEVERAL_VERSION, SHARE_VERSION = 4, 6


def handle(call: Call[FindCoordinatorRequest]) -> FindCoordinatorResponse:
    request = call.request
    if call.version < SEVERAL_VERSION:
        code, text, node = _find(call, request.key)
        return FindCoordinatorResponse(
            error_code=code, error_message=text, node_id=node.node_id, host=node.host, port=node.port
        )
    return FindCoordinatorResponse(coordinators=[_row(call, key) for key in request.coordinator_keys or ()])


def _row(call: Call[FindCoordinatorRequest], key: str) -> FindCoordinatorResponse.Coordinator:
    code, text, node = _find(call, key)
    return FindCoordinatorResponse.Coordinator(
        key=key, node_id=node.node_id, host=node.host, port=node.port, error_code=code, error_message=text
    )


def _find(call: Call[FindCoordinatorRequest], key: str) -> tuple[ErrorCode, str, Node]:
    code, text, node = _of_group(call, key) if call.request.key_type == GROUP else (*_refusal(call), NOBODY)
    call.count_error(code)
    return code, text, node


def _of_group(call: Call, group_id: str) -> tuple[ErrorCode, str, Node]:
    partition = call.cluster.groups.partition_of(group_id)
    node = None if partition is None else Brokers(call).leader(CONSUMER_OFFSETS, partition)
    if node is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, "the topic of the groups is being prepared", NOBODY
    return ErrorCode.NONE, "" if call.version >= SEVERAL_VERSION else "NONE", node  # as Kafka has it


def _refusal(call: Call[FindCoordinatorRequest]) -> tuple[ErrorCode, str]:
    key_type = call.request.key_type
    if key_type == SHARE and call.version >= SHARE_VERSION:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, "share groups are not served by this gateway"
    if key_type == TRANSACTION:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not served by this gateway"
    return ErrorCode.INVALID_REQUEST, f"unknown coordinator key type {key_type}"
