"""DescribeProducers (key 61), v0 (KIP-664): the idempotent producers that partitions know, and their transactions."""

from __future__ import annotations

import structlog

from gateway.errors import KafkaError, error_code
from gateway.fan_out import sliced
from gateway.log.transactions.log_transactions import LogTransactions
from gateway.log.writing.producer_state import ActiveProducer
from gateway.observability.logs import SparseLog
from gateway.pulsar.errors import PulsarError
from gateway.requests.call import Call
from gateway.requests.named_partitions import led_topic_of
from gateway.requests.repeated import look_up_each
from gateway.topics import topic_names
from protocol.kafka.batch import NO_SEQUENCE, NO_TIMESTAMP
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import DescribeProducersRequest, DescribeProducersResponse

NO_TRANSACTION = -1

_Topic = DescribeProducersResponse.TopicResponse
_Partition = _Topic.PartitionResponse

log = SparseLog(structlog.get_logger())


async def handle(call: Call[DescribeProducersRequest]) -> DescribeProducersResponse:
    topics = call.request.topics
    asked = [
        (topic.name, number) async for topic in sliced(topics) async for number in sliced(topic.partition_indexes)
    ]
    found = await look_up_each(asked, lambda each: _partition(call, *each), _named_too_often)
    rows = iter(found)
    return DescribeProducersResponse(
        topics=[
            _Topic(name=topic.name, partitions=[next(rows) async for _ in sliced(topic.partition_indexes)])
            async for topic in sliced(topics)
        ]
    )


def _named_too_often(asked: tuple[str, int]) -> _Partition:
    return _Partition(partition_index=asked[1], error_code=ErrorCode.INVALID_REQUEST, active_producers=[])


async def _partition(call: Call, name: str, partition: int) -> _Partition:
    try:
        producers = await _producers(call, name, partition)
    except (KafkaError, PulsarError, TimeoutError) as error:
        code = error_code(error)
        call.count_error(code)
        log.info("describe producers", topic=name, partition=partition, error=str(error))
        return _Partition(partition_index=partition, error_code=code, error_message=str(error), active_producers=[])
    return _Partition(
        partition_index=partition, error_code=0, error_message=None, active_producers=producers
    )


async def _producers(call: Call, name: str, partition: int) -> list[_Partition.ProducerState]:
    reason = topic_names.invalid_reason(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    topic = await led_topic_of(call, name, partition)
    if name == topic_names.CONSUMER_OFFSETS:
        return _producers_of_groups(call, partition)
    partition_log = await call.cluster.logs.open(topic, partition, whose=call.client.number)
    producers = await partition_log.producers.active()
    transactions = partition_log.transactions
    await transactions.prepare()
    listed = {producer.producer_id for producer in producers}
    # Old batches are not read again to restore the sequences of their producers.
    producers += [
        ActiveProducer(producer_id, transaction.producer_epoch, NO_SEQUENCE, NO_TIMESTAMP)
        for producer_id, transaction in transactions.open.items()
        if producer_id not in listed
    ]
    return [_row(producer, transactions) for producer in producers]


def _producers_of_groups(call: Call, partition: int) -> list[_Partition.ProducerState]:
    """Producers with pending offsets. The order of a transaction's first pending offset is its start offset."""
    partitions = call.cluster.groups.partitions
    found = None
    if partition < len(partitions):
        found = partitions[partition].run(lambda coordinator, now_ms: coordinator.open_transactions())
    if found is None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition's coordinator is not active here")
    return [
        _Partition.ProducerState(
            producer_id=each.producer_id, producer_epoch=each.producer_epoch, last_sequence=NO_SEQUENCE,
            last_timestamp=each.last_commit_ms, coordinator_epoch=each.coordinator_epoch,
            current_txn_start_offset=each.first_order,
        )
        for each in found
    ]  # fmt: skip


def _row(producer: ActiveProducer, transactions: LogTransactions) -> _Partition.ProducerState:
    transaction = transactions.of_producer(producer.producer_id)
    return _Partition.ProducerState(
        producer_id=producer.producer_id, producer_epoch=producer.epoch, last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=transactions.coordinator_epoch(producer.producer_id),
        current_txn_start_offset=NO_TRANSACTION if transaction is None else transaction.first_offset,
    )  # fmt: skip
