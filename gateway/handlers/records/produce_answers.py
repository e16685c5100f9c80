"""The response to Produce: its rows, and the errors of batches that are not written."""

from __future__ import annotations

import structlog

from gateway.errors import KafkaError, RejectedRecords, UndecompressableRecords, error_code
from gateway.handlers.records.verification import UnverifiedBatchError
from gateway.log.partition_log import PartitionLog
from gateway.log.writing.checking import FIRST_BATCH_VERSION, Produced
from gateway.observability.logs import SparseLog
from gateway.requests.brokers import Brokers
from gateway.requests.call import Call
from gateway.topics.topic import Topic
from protocol.kafka.batch import BatchHeader, CorruptBatch, InvalidBatch, parse_header
from protocol.kafka.buffers import Buffer
from protocol.kafka.codec import encode_response
from protocol.kafka.errors import ErrorCode
from protocol.kafka.handwritten.produce_request import ProducedTopic, topic_key
from protocol.kafka.handwritten.produce_response import encode_written
from protocol.kafka.messages.records import ProduceRequest, ProduceResponse

NO_OFFSET = NO_TIMESTAMP = -1
LEADER_HINT_VERSION = 10
_TopicResponse = ProduceResponse.TopicProduceResponse
_PartitionResponse = _TopicResponse.PartitionProduceResponse
_FOUND_IN_BATCH = InvalidBatch | RejectedRecords | UndecompressableRecords
_FOUND_WHILE_APPENDING = {
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
}
"""Errors whose answers contain the log start offset, as in Kafka."""

log = SparseLog(structlog.get_logger())


class PartitionAnswer(_PartitionResponse):
    """A row of the response, fast to create: there are many."""

    __slots__ = ()

    def __init__(self, index: int) -> None:
        self.index = index
        self.error_code = 0
        self.base_offset = self.log_append_time_ms = self.log_start_offset = NO_OFFSET
        self.record_errors = []
        self.error_message = None
        self.current_leader = None


class Part:
    """One partition of a request in progress."""

    __slots__ = (
        "answer",
        "has_log_start",
        "is_heavy",
        "key",
        "log",
        "name",
        "produced",
        "records",
        "topic",
        "topic_id",
        "waits",
    )  # fmt: skip

    def __init__(self, topic: ProducedTopic, index: int, records: memoryview | None) -> None:
        self.answer = PartitionAnswer(index)
        self.name = topic.name
        self.key = topic_key(topic)
        self.topic_id = topic.topic_id
        self.records = records
        self.topic: Topic | None = None
        self.produced: Produced | None = None
        self.log: PartitionLog | None = None
        self.is_heavy = False
        """A thread must check its records."""
        self.has_log_start = False
        """The error was found in the batch: its answer contains the log start offset, as in Kafka."""
        self.waits = False
        """The batch is appended, and its offset is not known yet."""


def add_topic(response: ProduceResponse, topic: ProducedTopic) -> _TopicResponse:
    """Add the topic to the response; the rows of its partitions follow."""
    answer = _TopicResponse(name=topic.name, topic_id=topic.topic_id)
    response.responses.append(answer)
    return answer


def written_response(
    call: Call[ProduceRequest], base_offset: int, log_append_time_ms: int, log_start_offset: int
) -> ProduceResponse:
    """The response to a request with one batch, which is written."""
    response, [asked] = ProduceResponse(), call.request.topic_data
    row = PartitionAnswer(asked.partition_data[0].index)
    row.base_offset, row.log_append_time_ms, row.log_start_offset = base_offset, log_append_time_ms, log_start_offset
    add_topic(response, asked).partition_responses.append(row)
    return response


def refused_response(
    call: Call[ProduceRequest], topic: Topic, produced: Produced, log: PartitionLog, error: Exception
) -> ProduceResponse:
    """The response to a request with one batch, which was appended and is not written."""
    response, [asked] = ProduceResponse(), call.request.topic_data
    part = Part(asked, asked.partition_data[0].index, produced.data)
    part.topic, part.produced, part.log = topic, produced, log
    add_topic(response, asked).partition_responses.append(part.answer)
    refuse(call, response, part, error)
    return response


def refuse(call: Call[ProduceRequest], response: ProduceResponse, part: Part, error: BaseException) -> None:
    """Set the error of a batch in its row of the response. The client's next batches are checked against it."""
    code = error_code(error)
    part.answer.error_code = code
    part.answer.log_append_time_ms = NO_TIMESTAMP
    part.answer.error_message = error.text if isinstance(error, KafkaError) else None
    if isinstance(error, RejectedRecords):
        row = _PartitionResponse.BatchIndexAndErrorMessage
        part.answer.record_errors = [
            row(batch_index=index, batch_index_error_message=text) for index, text in error.reasons.items()
        ]
    found_in_batch = isinstance(error, _FOUND_IN_BATCH) or code in _FOUND_WHILE_APPENDING
    verified = not isinstance(error, UnverifiedBatchError)
    part.has_log_start = found_in_batch and verified and part.topic is not None
    if part.has_log_start and part.log is not None:
        part.answer.log_start_offset = part.log.start.offset
    header = _header(part)
    if header is not None and call.version >= FIRST_BATCH_VERSION:
        call.client.refused.refuse(part.key, part.answer.index, header, code)
    if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        _point_to_leader(call, response, part)
    call.count_error(code)
    if not isinstance(error, KafkaError):
        log.info(
            "produce refused", client_id=call.client_id, address=call.client.address,
            topic=part.name, partition=part.answer.index, error=str(error),
        )  # fmt: skip


def _point_to_leader(call: Call[ProduceRequest], response: ProduceResponse, part: Part) -> None:
    brokers = Brokers(call)
    node = brokers.hint(part.name, part.answer.index)
    if node is not None and call.version >= LEADER_HINT_VERSION:
        hint = _PartitionResponse.LeaderIdAndEpoch(leader_id=node.node_id, leader_epoch=brokers.epoch)
        part.answer.current_leader = hint
        endpoint = ProduceResponse.NodeEndpoint(
            node_id=node.node_id, host=node.host, port=node.port, rack=node.rack
        )
        if endpoint not in response.node_endpoints:
            response.node_endpoints.append(endpoint)


def _header(part: Part) -> BatchHeader | None:
    """The header of the batch, even if the batch was not checked yet; None if no header can be read."""
    if part.produced is not None:
        return part.produced.header
    try:
        return parse_header(part.records) if part.records is not None else None
    except CorruptBatch:
        return None


def encode(
    kind: type[ProduceResponse], version: int, correlation_id: int, response: ProduceResponse
) -> list[Buffer]:
    for topic in response.responses:
        for row in topic.partition_responses:
            if row.error_code:
                return encode_response(kind, version, correlation_id, response)
    return [encode_written(version, correlation_id, response.responses, response.throttle_time_ms)]
