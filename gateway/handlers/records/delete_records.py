"""DeleteRecords (key 21), v0-v2 (KIP-107). v2 flexible."""

from __future__ import annotations

import structlog

from gateway.errors import KafkaError, error_code
from gateway.fan_out import fan_out, sliced
from gateway.observability.logs import SparseLog
from gateway.pulsar.errors import PulsarError
from gateway.requests.call import Call
from gateway.requests.named_partitions import led_topic_of
from gateway.topics.topic_names import INTERNAL_TOPICS
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import DeleteRecordsRequest, DeleteRecordsResponse

HIGH_WATERMARK = -1
NO_WATERMARK = -1

_Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
_Partition = _Topic.DeleteRecordsPartitionResult

log = SparseLog(structlog.get_logger())


async def handle(call: Call[DeleteRecordsRequest]) -> DeleteRecordsResponse:
    # A partition that is named twice is answered once, for its last row.
    wanted = {
        (topic.name, each.partition_index): each.offset
        async for topic in sliced(call.request.topics)
        async for each in sliced(topic.partitions)
    }
    rows = await fan_out(lambda asked: _partition(call, *asked[0], asked[1]), list(wanted.items()))
    by_topic: dict[str, list[_Partition]] = {}
    async for (name, _), row in sliced(zip(wanted, rows, strict=True)):
        by_topic.setdefault(name, []).append(row)
    topics = [_Topic(name=name, partitions=found) async for name, found in sliced(by_topic.items())]
    return DeleteRecordsResponse(topics=topics)


async def _partition(call: Call, name: str, partition: int, offset: int) -> _Partition:
    try:
        low_watermark, code = await _delete(call, name, partition, offset), ErrorCode.NONE
    except (KafkaError, PulsarError, TimeoutError) as error:
        low_watermark, code = NO_WATERMARK, error_code(error)
        call.count_error(code)
        log.info("delete records", topic=name, partition=partition, error=str(error))
    return _Partition(partition_index=partition, low_watermark=low_watermark, error_code=code)


async def _delete(call: Call, name: str, partition: int, offset: int) -> int:
    """Return the log start offset after the deletion. Raises KafkaError, PulsarError and TimeoutError."""
    topic = await led_topic_of(call, name, partition)
    if name in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if "delete" not in topic.config("cleanup.policy"):
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    partition_log = await call.cluster.logs.open(topic, partition, whose=call.client.number)
    await partition_log.end.refresh()
    if offset == HIGH_WATERMARK:
        offset = partition_log.end_offset
    if not 0 <= offset <= partition_log.end_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    await partition_log.start.delete_before(offset)
    return partition_log.start.offset
