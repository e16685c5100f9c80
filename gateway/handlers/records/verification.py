"""Verifies with the coordinator that a producer's transaction contains a batch's partition (KIP-890).

The first batch of a transaction in a partition is verified for all client versions: for Produce v12 and later, the
coordinator adds the partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from coordinator.topics import TopicPartition
from coordinator.transaction.messages import Producer
from coordinator.transaction.version_errors import Api, error_for_version
from gateway.coordination.transactions.verifier import Verifier
from gateway.errors import KafkaError
from gateway.log.transactions.transactional_writes import TransactionalWrites
from gateway.requests.call import Call
from protocol.kafka.batch import CRC_START, HEADER_BYTES, MAGIC_V2, TRANSACTIONAL_MASK, BatchHeader, parse_header
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import ProduceRequest

ADDING_VERSION = 12
PATIENCE_S, RETRY_S = 0.1, 0.01
"""The time to wait for the previous transaction's markers: Kafka 4's add.partitions.to.txn.retry.backoff.max.ms, and
less than its 20 ms between two attempts, because clients wait for them."""
_ATTRIBUTES = CRC_START + 1
"""The lower byte of the attributes."""
_TEXTS = {
    ErrorCode.INVALID_TXN_STATE: "Partition was not added to the transaction",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Unable to verify the partition has been added to the transaction.",
}


class UnverifiedBatchError(KafkaError):
    """The batch is not verified, and its content was not checked."""


def refused_as_whole(request: ProduceRequest) -> ErrorCode:
    """Why all batches of the request are refused, because of its transactional ones; NONE for most requests."""
    producers: set[tuple[int, int]] = set()
    for header in _transactional_headers(request):
        if request.transactional_id is None:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if header.producer_id >= 0:
            producers.add((header.producer_id, header.producer_epoch))
    return ErrorCode.NONE if len(producers) <= 1 else ErrorCode.INVALID_PRODUCER_ID_MAPPING


def is_transactional(request: ProduceRequest) -> bool:
    """Whether one of its batches belongs to a transaction: otherwise the transactional id has no meaning, as in Kafka.
    """
    return next(_transactional_headers(request), None) is not None


def _transactional_headers(request: ProduceRequest) -> Iterator[BatchHeader]:
    for topic in request.topic_data:
        for partition in topic.partition_data:
            records = partition.records
            if records is None or len(records) < HEADER_BYTES or not records[_ATTRIBUTES] & TRANSACTIONAL_MASK:
                continue
            header = parse_header(records)
            if header.magic == MAGIC_V2:
                yield header


async def _ask(
    verifier: Verifier,
    transactional_id: str,
    writes: TransactionalWrites,
    producer: Producer,
    partition: TopicPartition,
    *,
    add: bool,
) -> ErrorCode:
    """CONCURRENT_TRANSACTIONS also if a marker came in the meantime: the answer may be about an earlier transaction."""
    verification = writes.verifications.begin(producer.id)
    try:
        found = await verifier.verify(transactional_id, producer, partition, add=add)
        if not found and not writes.verifications.verified(verification, *producer):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return found
    finally:
        writes.verifications.end(verification, producer.id)


async def verify(
    call: Call[ProduceRequest], writes: TransactionalWrites, partition: TopicPartition, header: BatchHeader
) -> None:
    """Raises UnverifiedBatchError. A verification is valid until the transaction's marker arrives."""
    transactional_id = call.request.transactional_id
    if transactional_id is None or not writes.needs_verification(header):
        return
    producer = Producer(header.producer_id, header.producer_epoch)
    adds = call.version >= ADDING_VERSION
    loop = asyncio.get_running_loop()
    end_s = loop.time() + PATIENCE_S
    while found := await _ask(call.cluster.verifier, transactional_id, writes, producer, partition, add=adds):
        if found is not ErrorCode.CONCURRENT_TRANSACTIONS or not adds or loop.time() >= end_s:
            break
        await asyncio.sleep(RETRY_S)
    if found:
        raise unverified(call.version, found)


def verify_at_once(
    call: Call[ProduceRequest], writes: TransactionalWrites, partition: TopicPartition, header: BatchHeader
) -> None:
    """Verify the batch if this gateway coordinates its transaction: that needs no waiting. Otherwise nothing is done,
    and `verify` has to be called; it also finds the errors."""
    transactional_id = call.request.transactional_id
    if transactional_id is None or call.version >= ADDING_VERSION:
        return
    producer = Producer(header.producer_id, header.producer_epoch)
    if call.cluster.verifier.verify_here(transactional_id, producer, partition) is ErrorCode.NONE:
        verification = writes.verifications.begin(producer.id)
        writes.verifications.verified(verification, *producer)
        writes.verifications.end(verification, producer.id)


def unverified(version: int, found: ErrorCode) -> UnverifiedBatchError:
    """The error that a producer with this version of Produce gets for ``found``."""
    code = error_for_version(Api.PRODUCE, version, found)
    text = _TEXTS.get(code)
    if code is ErrorCode.NOT_ENOUGH_REPLICAS:
        text = f"{text} Underlying error: {found.name}"
    return UnverifiedBatchError(code, text)
