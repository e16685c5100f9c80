"""DescribeTopicPartitions (key 75), v0 (KIP-966): topics a page at a time, in the order of their names."""

from __future__ import annotations

import uuid
from operator import itemgetter

import structlog

from gateway.errors import KafkaError, error_code
from gateway.fan_out import fan_out, sliced, sorted_in_slices
from gateway.observability.logs import SparseLog
from gateway.pulsar.errors import PulsarError
from gateway.requests.brokers import Brokers
from gateway.requests.call import Call
from gateway.topics import topic_names
from gateway.topics.topic import Topic
from protocol.kafka.acl import NOT_ASKED, AclOperation, ResourceType, bit_field
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.topics import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse

MAX_PARTITIONS = 2_000
"""Partitions in one response: Kafka's max.request.partition.size.limit."""
NO_ID = uuid.UUID(int=0)

_Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Partition = _Topic.DescribeTopicPartitionsResponsePartition
_Cursor = DescribeTopicPartitionsResponse.Cursor

log = SparseLog(structlog.get_logger())


async def handle(call: Call[DescribeTopicPartitionsRequest]) -> DescribeTopicPartitionsResponse:
    try:
        found = await _found(call)
    except (KafkaError, PulsarError) as error:
        code = error_code(error)
        call.count_error(code)
        rows = [_failed(asked.name, code, NOT_ASKED) async for asked in sliced(call.request.topics)]
        return DescribeTopicPartitionsResponse(topics=rows, next_cursor=None)
    return await _page(call, found)


async def _found(call: Call[DescribeTopicPartitionsRequest]) -> dict[str, Topic | ErrorCode]:
    """The requested topics, from the cursor on, by name. Raises KafkaError INVALID_REQUEST.

    Raises PulsarError if all topics are requested, and were never listed.
    """
    request, cursor, catalog = call.request, call.request.cursor, call.cluster.topics
    first = cursor.topic_name if cursor is not None else ""
    found: dict[str, Topic | ErrorCode]
    if request.topics:
        distinct = {asked.name: None async for asked in sliced(request.topics) if asked.name >= first}
        if cursor is not None and first not in distinct:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the cursor's topic is not requested: {first}")
        names = await sorted_in_slices(list(distinct))
        looked_up = await fan_out(lambda name: _look_up(call, name), names)
        found = {name: topic async for name, topic in sliced(zip(names, looked_up, strict=True))}
    else:
        topics, unknown = await catalog.all()
        everything: list[tuple[str, Topic | ErrorCode]] = [(topic.name, topic) for topic in topics]
        everything += [(name, ErrorCode.LEADER_NOT_AVAILABLE) for name in unknown]
        found = {
            name: topic
            async for name, topic in sliced(sorted(everything, key=itemgetter(0)))
            if name >= first and call.context.policy.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        }
    if cursor is not None and cursor.partition_index < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the cursor's partition is {cursor.partition_index}")
    return found


async def _look_up(call: Call, name: str) -> Topic | ErrorCode:
    if topic_names.invalid_reason(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    try:
        return await call.topics.get(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except PulsarError as error:
        log.warning("describe topic partitions", topic=name, error=str(error))
        return ErrorCode.LEADER_NOT_AVAILABLE


async def _page(
    call: Call[DescribeTopicPartitionsRequest], found: dict[str, Topic | ErrorCode]
) -> DescribeTopicPartitionsResponse:
    """Rows up to the limit, and the next cursor."""
    room = max(1, min(call.request.response_partition_limit, MAX_PARTITIONS))
    cursor = call.request.cursor
    rows: list[_Topic] = []
    async for name, topic in sliced(found.items()):
        if room == 0:
            return DescribeTopicPartitionsResponse(topics=rows, next_cursor=_Cursor(topic_name=name, partition_index=0))
        if isinstance(topic, ErrorCode):
            rows.append(_failed(name, topic, _operations(call, name)))
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        end = min(topic.partitions, first + room)
        rows.append(_row(call, topic, range(first, end)))
        if end < topic.partitions:
            next_cursor = _Cursor(topic_name=name, partition_index=end)
            return DescribeTopicPartitionsResponse(topics=rows, next_cursor=next_cursor)
        room -= max(0, end - first)
    return DescribeTopicPartitionsResponse(topics=rows, next_cursor=None)


def _row(call: Call, topic: Topic, numbers: range) -> _Topic:
    brokers = Brokers(call)
    return _Topic(
        error_code=0, name=topic.name, topic_id=topic.topic_id, is_internal=topic.name in topic_names.INTERNAL_TOPICS,
        partitions=[_partition(brokers, topic.name, number) for number in numbers],
        topic_authorized_operations=_operations(call, topic.name),
    )  # fmt: skip


def _partition(brokers: Brokers, topic: str, number: int) -> _Partition:
    leader, error = brokers.leader_or_error(topic, number)
    replicas = brokers.replicas(topic, number, leader.node_id)
    return _Partition(
        error_code=error, partition_index=number,
        leader_id=leader.node_id, leader_epoch=brokers.epoch, replica_nodes=replicas,
        isr_nodes=replicas, eligible_leader_replicas=[], last_known_elr=[], offline_replicas=[],
    )  # fmt: skip


def _operations(call: Call, topic: str) -> int:
    return bit_field(call.context.policy.topic_operations(topic))


def _failed(name: str, code: ErrorCode, operations: int) -> _Topic:
    return _Topic(
        error_code=code, name=name, topic_id=NO_ID, is_internal=name in topic_names.INTERNAL_TOPICS, partitions=[],
        topic_authorized_operations=operations,
    )  # fmt: skip
