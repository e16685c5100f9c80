"""Guards of records: TOPIC Read, Write, Describe and Delete."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gateway.authorization.guard import (
    AT_ONCE,
    LARGE_ROWS,
    MESSAGES,
    TopicRows,
    chain,
    changed,
    made,
    may,
    may_cluster,
    refusal,
)
from gateway.fan_out import Slices
from gateway.handlers.records.produce import look_up_names, names_known
from gateway.handlers.records.verification import is_transactional
from gateway.requests.call import Call, ClosesConnection, Guard, Handle
from gateway.requests.reply import Reply, Response
from protocol.kafka.acl import CLUSTER_NAME, AclOperation, ResourceType
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import (
    DeleteRecordsResponse,
    DescribeProducersResponse,
    ListOffsetsResponse,
    OffsetForLeaderEpochResponse,
    ProduceRequest,
    ProduceResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_ListedOffsets = ListOffsetsResponse.ListOffsetsTopicResponse
_Deleted = DeleteRecordsResponse.DeleteRecordsTopicResult
_Epochs = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
_Producers = DescribeProducersResponse.TopicResponse
_Produced = ProduceResponse.TopicProduceResponse
_Marked = WriteTxnMarkersResponse.WritableTxnMarkerResult
_INVALID = -1

LIST_OFFSETS = TopicRows(
    AclOperation.DESCRIBE, "topics", "topics", _ListedOffsets, _ListedOffsets.ListOffsetsPartitionResponse
).guard
DELETE_RECORDS = TopicRows(
    AclOperation.DELETE, "topics", "topics", _Deleted,
    lambda **fields: _Deleted.DeleteRecordsPartitionResult(low_watermark=_INVALID, **fields),
).guard  # fmt: skip
DESCRIBE_PRODUCERS = TopicRows(
    AclOperation.READ, "topics", "topics", _Producers,
    lambda **fields: _Producers.PartitionResponse(
        error_message=MESSAGES[ErrorCode.TOPIC_AUTHORIZATION_FAILED], **fields
    ),
    asked_partitions="partition_indexes", asked_index=None,
).guard  # fmt: skip
_TOPICS_OF_EPOCHS = TopicRows(
    AclOperation.DESCRIBE, "topics", "topics", _Epochs, _Epochs.EpochEndOffset,
    name="topic", asked_index="partition", index="partition",
).guard  # fmt: skip


def offset_for_leader_epoch(call: Call, handle: Handle) -> Reply:
    """Brokers used to send this request to each other, and their right is still accepted."""
    return handle(call) if may_cluster(call, AclOperation.CLUSTER_ACTION) else _TOPICS_OF_EPOCHS(call, handle)


def write_txn_markers(call: Call[WriteTxnMarkersRequest], handle: Handle) -> Reply:
    """Administrators abort hanging transactions with this request."""
    if may_cluster(call, AclOperation.ALTER) or may_cluster(call, AclOperation.CLUSTER_ACTION):
        return handle(call)
    call.count_denied(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    return refusal(call, partial(_refuse_markers, call.request))


def _refuse_markers(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    code, topic = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, _Marked.WritableTxnMarkerTopicResult
    rows = [
        _Marked(
            producer_id=marker.producer_id,
            topics=[
                topic(
                    name=each.name,
                    partitions=[
                        topic.WritableTxnMarkerPartitionResult(partition_index=number, error_code=code)
                        for number in each.partition_indexes
                    ],
                )
                for each in marker.topics
            ],
        )
        for marker in request.markers
    ]
    return WriteTxnMarkersResponse(markers=rows)


# Produce


def _transactional_id(call: Call[ProduceRequest], handle: Handle) -> Reply:
    """Without a transactional batch, no transactional id is needed, and none counts."""
    transactional_id, right = call.request.transactional_id, (AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
    if not is_transactional(call.request) or (transactional_id is not None and may(call, *right, transactional_id)):
        return handle(call)
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    call.count_denied(*right, transactional_id or "")
    if call.request.acks == 0:
        raise ClosesConnection("a batch with acks=0 was denied")
    return refusal(call, partial(_refuse_all, call.request, code))


def _refuse_all(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    return ProduceResponse(responses=[_refused(topic, code) for topic in request.topic_data])


def _named(call: Call[ProduceRequest], handle: Handle) -> Reply:
    return handle(call) if names_known(call) else Reply.after(_when_named(call, handle))


async def _when_named(call: Call[ProduceRequest], handle: Handle) -> Reply:
    await look_up_names(call)
    return handle(call)


def _topics(call: Call[ProduceRequest], handle: Handle) -> Reply:
    topics = call.request.topic_data
    if len(topics) > AT_ONCE or sum(len(topic.partition_data) for topic in topics) > LARGE_ROWS:
        return Reply.after(_topics_in_slices(call, handle))
    refused, allowed = [], []
    for topic in topics:
        code = _error_of(call, topic)
        if code is None:
            allowed.append(topic)
        else:
            refused.append(_refused(topic, code))
    return _produced(call, handle, allowed, refused)


async def _topics_in_slices(call: Call[ProduceRequest], handle: Handle) -> Reply:
    slices, refused, allowed = Slices(), list[_Produced](), []
    for topic in call.request.topic_data:
        await slices.pause()
        code = _error_of(call, topic)
        if code is None:
            allowed.append(topic)
        else:
            refused.append(await made(partial(_refused, topic, code), len(topic.partition_data)))
    return _produced(call, handle, allowed, refused)


def _error_of(call: Call[ProduceRequest], topic: ProduceRequest.TopicProduceData) -> ErrorCode | None:
    """Why a topic is refused, which is counted. The handler gets no unknown id: the topic may be known when it looks
    for it."""
    if topic.topic_id is not None and not topic.name:
        call.count_error(ErrorCode.UNKNOWN_TOPIC_ID)
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not topic.name or may(call, AclOperation.WRITE, ResourceType.TOPIC, topic.name):
        return None
    call.count_denied(AclOperation.WRITE, ResourceType.TOPIC, topic.name)
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _produced(
    call: Call[ProduceRequest], handle: Handle, allowed: Sequence[ProduceRequest.TopicProduceData],
    refused: Sequence[_Produced],
) -> Reply:  # fmt: skip
    if not refused:
        return handle(call)
    is_answered = call.request.acks != 0

    def add_refused(response: ProduceResponse | None) -> Response:
        if response is None:
            raise ClosesConnection("a batch with acks=0 was refused")
        return changed(response, "responses", [*response.responses, *refused])  # type: ignore[no-any-return]

    if not allowed:
        return Reply(add_refused(ProduceResponse() if is_answered else None))
    return handle(call.asking(changed(call.request, "topic_data", allowed))).then(add_refused)


def _refused(topic: ProduceRequest.TopicProduceData, code: ErrorCode) -> _Produced:
    row = _Produced.PartitionProduceResponse
    return _Produced(
        name=topic.name, topic_id=topic.topic_id,
        partition_responses=[
            row(index=each.index, error_code=code, base_offset=_INVALID, log_append_time_ms=_INVALID,
                log_start_offset=_INVALID)
            for each in topic.partition_data
        ],
    )  # fmt: skip


_PRODUCE: Guard = chain(_transactional_id, _named, _topics)


def produce(call: Call[ProduceRequest], handle: Handle) -> Reply:
    """Produce requests are frequent, and nearly all are allowed: these are found without a chain of guards."""
    request, allows = call.request, call.context.policy.allows
    producer = request.transactional_id
    is_small = len(request.topic_data) <= AT_ONCE
    is_allowed = producer is None or allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, producer)
    if is_small and is_allowed and names_known(call):
        for topic in request.topic_data:
            if not allows(AclOperation.WRITE, ResourceType.TOPIC, topic.name):
                break
        else:
            return handle(call)
    return _PRODUCE(call, handle)
