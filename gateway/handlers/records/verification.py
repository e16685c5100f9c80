"""Whether the coordinator knows that a producer's transaction has a batch's partition (KIP-890).

The first batch of a transaction in a partition is verified, whatever the client's version: for Produce from v12 on, the
coordinator adds the partition.
"""

from __future__ import annotations

from coordinator.topics import TopicPartition
from coordinator.transaction.messages import Producer
from coordinator.transaction.version_errors import Api, error_for_version
from gateway.errors import KafkaError
from gateway.log.transactions.log_transactions import LogTransactions
from gateway.requests.call import Call
from protocol.kafka.batch import CRC_START, HEADER_BYTES, MAGIC_V2, TRANSACTIONAL_MASK, BatchHeader, parse_header
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import ProduceRequest

ADDING_VERSION = 12
_ATTRIBUTES = CRC_START + 1
"""Their lower byte."""
_TEXTS = {
    ErrorCode.INVALID_TXN_STATE: "Partition was not added to the transaction",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Unable to verify the partition has been added to the transaction.",
}


class UnverifiedBatchError(KafkaError):
    """The batch was not looked at."""


def refused_as_whole(request: ProduceRequest) -> ErrorCode:
    """Why no batch of the request is taken, by the transactional ones among them; NONE for most."""
    producers: set[tuple[int, int]] = set()
    for topic in request.topic_data:
        for partition in topic.partition_data:
            records = partition.records
            if records is None or len(records) < HEADER_BYTES or not records[_ATTRIBUTES] & TRANSACTIONAL_MASK:
                continue
            header = parse_header(records)
            if header.magic != MAGIC_V2:
                continue
            if request.transactional_id is None:
                return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            if header.producer_id >= 0:
                producers.add((header.producer_id, header.producer_epoch))
    return ErrorCode.NONE if len(producers) <= 1 else ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def verify(
    call: Call[ProduceRequest], transactions: LogTransactions, partition: TopicPartition, header: BatchHeader
) -> None:
    """Raises UnverifiedBatchError. What was verified counts until the transaction's marker comes."""
    transactional_id = call.request.transactional_id
    if transactional_id is None or not transactions.needs_verification(header):
        return
    producer_id, producer_epoch = header.producer_id, header.producer_epoch
    verification = transactions.verifications.begin(producer_id)
    try:
        found = await call.cluster.verifier.verify(
            transactional_id, Producer(producer_id, producer_epoch), partition, add=call.version >= ADDING_VERSION
        )
        if not found:
            transactions.verifications.verified(verification, producer_id, producer_epoch)
            return
    finally:
        transactions.verifications.end(verification, producer_id)
    code = error_for_version(Api.PRODUCE, call.version, found)
    text = _TEXTS.get(code)
    if code is ErrorCode.NOT_ENOUGH_REPLICAS:
        text = f"{text} Underlying error: {found.name}"
    raise UnverifiedBatchError(code, text)
