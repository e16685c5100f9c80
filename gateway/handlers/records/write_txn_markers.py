"""WriteTxnMarkers (key 27), v1-v2: the ends of transactions, written by the leaders of their partitions (KIP-98).

v1 flexible; v2 the transaction's version (KIP-1228). Used by transaction coordinators, and by administrators who end
transactions by hand (KIP-664).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from coordinator.fleet.leadership import PartitionRole
from coordinator.group.messages import EndOfTransaction
from gateway.coordination.groups.group_markers import write_group_marker
from gateway.errors import KafkaError, error_code
from gateway.fan_out import fan_out, sliced
from gateway.log.partition_log import PartitionLog
from gateway.log.transactions.marker_appends import MarkerForm
from gateway.observability.logs import LINES_PER_S, SparseLog
from gateway.pulsar.errors import PulsarError
from gateway.requests.call import Call
from gateway.requests.cluster import Cluster
from gateway.requests.reply import Reply
from gateway.topics.topic_names import CONSUMER_OFFSETS, INTERNAL_TOPICS
from protocol.kafka.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from protocol.kafka.transaction_marker import MarkerType, TransactionMarker

PARTITION_S = 5.0
"""A partition that takes longer gets NOT_LEADER_OR_FOLLOWER, so that the others of the request are not delayed. Its log
continues to open. A marker that is already queued there is joined by the next attempt; a marker that is not queued is
not appended later."""
REQUEST_S = 30.0
"""The time for all partitions together, less than a coordinator waits for the answer."""

_Marker = WriteTxnMarkersRequest.WritableTxnMarker
_Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
_Topic = _Result.WritableTxnMarkerTopicResult
_Partition = _Topic.WritableTxnMarkerPartitionResult

log = SparseLog(structlog.get_logger(), lines=LINES_PER_S)


def handle(call: Call[WriteTxnMarkersRequest]) -> Reply:
    """A partition that Pulsar does not serve delays the request that names it, but no later request on the link."""
    links, client_id = call.cluster.marker_links, call.client_id
    links.admits(client_id)  # from now on, markers from older links are refused, however long this request waits
    writing = write_markers(call.cluster, call.request, lambda: links.admits(client_id))
    return Reply.later(asyncio.ensure_future(writing))


async def write_markers(
    cluster: Cluster, request: WriteTxnMarkersRequest, still_wanted: Callable[[], bool] = lambda: True
) -> WriteTxnMarkersResponse:
    """Answer when each marker is in its log, or will never be appended.

    No marker is appended when it is not ``still_wanted``: its sender sends it again.
    """
    asked = [
        (marker, topic.name, partition)
        async for marker in sliced(request.markers)
        async for topic in sliced(marker.topics)
        async for partition in sliced(topic.partition_indexes)
    ]
    end_s = asyncio.get_running_loop().time() + REQUEST_S
    codes = iter(await fan_out(lambda each: _write_in_time(cluster, still_wanted, end_s, *each), asked))
    return WriteTxnMarkersResponse(
        markers=[
            _Result(
                producer_id=marker.producer_id,
                topics=[
                    _Topic(
                        name=topic.name,
                        partitions=[
                            _Partition(partition_index=partition, error_code=next(codes))
                            async for partition in sliced(topic.partition_indexes)
                        ],
                    )
                    async for topic in sliced(marker.topics)
                ],
            )
            async for marker in sliced(request.markers)
        ]
    )


async def _write_in_time(
    cluster: Cluster, still_wanted: Callable[[], bool], end_s: float, written: _Marker, name: str, partition: int
) -> ErrorCode:
    try:
        async with asyncio.timeout_at(min(end_s, asyncio.get_running_loop().time() + PARTITION_S)):
            return await _write(cluster, still_wanted, written, name, partition)
    except TimeoutError:
        log.info(
            "marker not written in time", topic=name, partition=partition, producer_id=written.producer_id,
            seconds=PARTITION_S,
        )  # fmt: skip
        return ErrorCode.NOT_LEADER_OR_FOLLOWER


async def _write(
    cluster: Cluster, still_wanted: Callable[[], bool], written: _Marker, name: str, partition: int
) -> ErrorCode:
    marker = TransactionMarker(
        MarkerType.COMMIT if written.transaction_result else MarkerType.ABORT,
        written.producer_id,
        written.producer_epoch,
        written.coordinator_epoch,
    )
    if written.producer_id == NO_PRODUCER_ID or written.producer_epoch == NO_PRODUCER_EPOCH:  # it would end nothing
        return ErrorCode.INVALID_REQUEST
    try:
        if name == CONSUMER_OFFSETS:
            return await _write_to_groups(cluster, still_wanted, written, partition)
        if name in INTERNAL_TOPICS:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition_log, form = await _prepared(cluster, name, partition)
        _check_leads(cluster, name, partition)
        if not still_wanted():
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the sender's connection is closed")
        await partition_log.transactional_writes.append_marker(marker, written.transaction_version, form)
    except (KafkaError, PulsarError, TimeoutError, OSError) as error:
        code = error_code(error)
        log.info("marker not written", topic=name, partition=partition, marker=marker, code=code.name, error=str(error))
        return code
    return ErrorCode.NONE


async def _write_to_groups(
    cluster: Cluster, still_wanted: Callable[[], bool], written: _Marker, partition: int
) -> ErrorCode:
    if not still_wanted():
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    end = EndOfTransaction(
        written.producer_id,
        written.producer_epoch,
        written.coordinator_epoch,
        written.transaction_result,
        written.transaction_version,
    )
    return await write_group_marker(cluster.groups, partition, end)


async def _prepared(cluster: Cluster, name: str, partition: int) -> tuple[PartitionLog, MarkerForm]:
    topic = await cluster.topics.get(name)
    if topic is None or not 0 <= partition < topic.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    _check_leads(cluster, name, partition)
    partition_log = await cluster.logs.open(topic, partition, urgent=True)
    await partition_log.prepare_marker()
    log_append_time = topic.config("message.timestamp.type") == "LogAppendTime"
    return partition_log, MarkerForm(topic.writes_messages, topic.has_compaction_keys, log_append_time)


def _check_leads(cluster: Cluster, name: str, partition: int) -> None:
    """No other gateway can lead either: two leaders would check markers without knowing each other's markers."""
    if cluster.fleet.role(name, partition) is not PartitionRole.LEADING:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
