"""FindCoordinator (key 10), v0-v6. v1 key type; v3 flexible; v4 several keys (KIP-699); v6 share groups' key type.

The coordinator of a group is the leader of its partition of `__consumer_offsets`, that of a transactional id the leader
of its partition of `__transaction_state`. No transaction coordinator is available while the fleet has a member of a
version without transactions.
"""

from __future__ import annotations

from enum import IntEnum

from coordinator.fleet.messages import NO_TRANSACTIONS
from gateway.fan_out import Slices, sliced
from gateway.requests.brokers import NOBODY, Brokers
from gateway.requests.call import Call
from gateway.requests.cluster import Node
from gateway.topics.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse

SEVERAL_VERSION, SHARE_VERSION = 4, 6


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


async def handle(call: Call[FindCoordinatorRequest]) -> FindCoordinatorResponse:
    request = call.request
    if call.version < SEVERAL_VERSION:
        code, text, node = _find(call, request.key)
        return FindCoordinatorResponse(
            error_code=code, error_message=text, node_id=node.node_id, host=node.host, port=node.port
        )
    slices, rows = Slices(), dict[str, FindCoordinatorResponse.Coordinator]()
    for key in request.coordinator_keys or ():
        await slices.pause()
        if key not in rows:
            rows[key] = _row(call, key)
    return FindCoordinatorResponse(coordinators=[rows[key] async for key in sliced(request.coordinator_keys or ())])


def _row(call: Call[FindCoordinatorRequest], key: str) -> FindCoordinatorResponse.Coordinator:
    code, text, node = _find(call, key)
    return FindCoordinatorResponse.Coordinator(
        key=key, node_id=node.node_id, host=node.host, port=node.port, error_code=code, error_message=text
    )


def _find(call: Call[FindCoordinatorRequest], key: str) -> tuple[ErrorCode, str, Node]:
    match call.request.key_type:
        case KeyType.GROUP:
            code, text, node = _leader(call, CONSUMER_OFFSETS, call.cluster.groups.partition_of(key))
        case KeyType.TRANSACTION if call.cluster.fleet.transaction_version == NO_TRANSACTIONS:
            code, text, node = ErrorCode.COORDINATOR_NOT_AVAILABLE, "not every gateway serves transactions yet", NOBODY
        case KeyType.TRANSACTION:
            code, text, node = _leader(call, TRANSACTION_STATE, call.cluster.transactions.partition_of(key))
        case _:
            code, text, node = *_refusal(call), NOBODY
    call.count_error(code)
    return code, text, node


def _leader(call: Call, topic: str, partition: int | None) -> tuple[ErrorCode, str, Node]:
    node = None if partition is None else Brokers(call).leader(topic, partition)
    if node is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic} is not ready", NOBODY
    return ErrorCode.NONE, "" if call.version >= SEVERAL_VERSION else "NONE", node  # as Kafka has it


def _refusal(call: Call[FindCoordinatorRequest]) -> tuple[ErrorCode, str]:
    key_type = call.request.key_type
    if key_type == KeyType.SHARE and call.version >= SHARE_VERSION:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, "share groups are not served by this gateway"
    return ErrorCode.INVALID_REQUEST, f"unknown coordinator key type {key_type}"
