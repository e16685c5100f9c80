"""OffsetForLeaderEpoch (key 23), v0-v4: where a leader epoch ends, so that clients notice a truncated log.

v1 the epoch found; v2 the client's current epoch; v3 replica id; v4 flexible. Logs are never truncated at their end
here, whichever gateway leads them: all records have one epoch, which ends where the log ends.
"""

from __future__ import annotations

import asyncio

import structlog

from coordinator.fleet.leadership import PartitionRole
from gateway.errors import KafkaError, error_code
from gateway.fan_out import fan_out, sliced
from gateway.observability.logs import SparseLog
from gateway.pulsar.errors import PulsarError
from gateway.requests.brokers import RECORDS_EPOCH
from gateway.requests.call import Call
from gateway.requests.named_partitions import led_topic_of
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

UNKNOWN_EPOCH, UNKNOWN_OFFSET = -1, -1
TAKEN_OVER_CHECKS = 50
TAKEN_OVER_CHECK_S = 0.02

_Asked = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition
_Topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
_Partition = _Topic.EpochEndOffset

log = SparseLog(structlog.get_logger())


async def handle(call: Call[OffsetForLeaderEpochRequest]) -> OffsetForLeaderEpochResponse:
    topics = call.request.topics
    named = [(topic.topic, part) async for topic in sliced(topics) async for part in sliced(topic.partitions)]
    rows = iter(await fan_out(lambda each: _partition(call, *each), named))
    return OffsetForLeaderEpochResponse(
        topics=[
            _Topic(topic=topic.topic, partitions=[next(rows) async for _ in sliced(topic.partitions)])
            async for topic in sliced(topics)
        ]
    )


async def _partition(call: Call, name: str, asked: _Asked) -> _Partition:
    try:
        (epoch, end_offset), code = await _end(call, name, asked), ErrorCode.NONE
    except (KafkaError, PulsarError, TimeoutError) as error:
        (epoch, end_offset), code = (UNKNOWN_EPOCH, UNKNOWN_OFFSET), error_code(error)
        call.count_error(code)
        # A KafkaError is not logged: it concerns only clients, which ask many times per second.
        if not isinstance(error, KafkaError):
            log.info("offset for leader epoch", topic=name, partition=asked.partition, error=str(error))
    return _Partition(partition=asked.partition, error_code=code, leader_epoch=epoch, end_offset=end_offset)


async def _await_takeover(call: Call, name: str, partition: int) -> None:
    """Wait until the previous leader writes no more. Raises KafkaError.

    Its last records may be in flight to the client, which would consider an earlier end a truncated log.
    """
    for _ in range(TAKEN_OVER_CHECKS):
        if call.cluster.fleet.role(name, partition) is PartitionRole.LEADING:
            return
        await asyncio.sleep(TAKEN_OVER_CHECK_S)
    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def _end(call: Call, name: str, asked: _Asked) -> tuple[int, int]:
    """The last epoch up to the requested one, and the offset after it. Raises the storage's errors."""
    topic = await led_topic_of(call, name, asked.partition, asked.current_leader_epoch)
    if asked.leader_epoch > RECORDS_EPOCH or asked.leader_epoch == UNKNOWN_EPOCH:
        return UNKNOWN_EPOCH, UNKNOWN_OFFSET
    await _await_takeover(call, name, asked.partition)
    partition_log = await call.cluster.logs.open(topic, asked.partition, whose=call.client.number)
    if asked.leader_epoch < RECORDS_EPOCH:
        return asked.leader_epoch, partition_log.start.offset
    await partition_log.end.refresh()
    return RECORDS_EPOCH, partition_log.written_offset
