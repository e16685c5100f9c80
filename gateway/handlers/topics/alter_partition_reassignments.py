"""AlterPartitionReassignments (key 45), v0-v1 (KIP-455). v1 may forbid another replication factor (KIP-860).

Each partition has one replica, its leader; Pulsar places the data. A request for the present assignment succeeds, any
other is refused, and there is never a reassignment to cancel.
"""

from __future__ import annotations

from gateway.errors import KafkaError, error_code
from gateway.fan_out import fan_out, sliced
from gateway.handlers.topics.controller_timeout import is_over
from gateway.pulsar.errors import PulsarError
from gateway.requests.brokers import Brokers
from gateway.requests.call import Call
from gateway.requests.cluster import Node
from gateway.requests.named_partitions import topic_of
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.topics import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse

_Asked = AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition
_Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Partition = _Topic.ReassignablePartitionResponse


async def handle(call: Call[AlterPartitionReassignmentsRequest]) -> AlterPartitionReassignmentsResponse:
    topics = call.request.topics
    asked = [(topic.name, part) async for topic in sliced(topics) async for part in sliced(topic.partitions)]
    code = ErrorCode.REQUEST_TIMED_OUT if topics and is_over(call.request.timeout_ms) else ErrorCode.NONE
    if code:
        call.count_error(code)
        rows = iter([_row(part, code, None) async for _, part in sliced(asked)])
    else:
        rows = iter(await fan_out(lambda each: _partition(call, *each), asked))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=call.version < 1 or call.request.allow_replication_factor_change,
        error_code=code,
        error_message=None,
        responses=[
            _Topic(name=topic.name, partitions=[next(rows) async for _ in sliced(topic.partitions)])
            async for topic in sliced(topics)
        ],
    )


async def _partition(call: Call, name: str, asked: _Asked) -> _Partition:
    code, text = ErrorCode.NONE, None
    try:
        await topic_of(call, name, asked.partition_index)
        _check(Brokers(call).leader(name, asked.partition_index), asked.replicas)
    except KafkaError as error:
        code, text = error.code, error.text or "The topic or partition does not exist."
    except PulsarError as error:
        code, text = error_code(error), str(error)
    if code:
        call.count_error(code)
    return _row(asked, code, text)


def _row(asked: _Asked, code: ErrorCode, text: str | None) -> _Partition:
    return _Partition(partition_index=asked.partition_index, error_code=code, error_message=text)


def _check(leader: Node | None, replicas: list[int] | None) -> None:
    if replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    if leader is None or replicas != [leader.node_id]:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Pulsar places the data: replicas cannot be reassigned"
        )
