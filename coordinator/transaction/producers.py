"""Which producer may use a transactional id next (InitProducerId, KIP-360), and with which producer id and epoch."""

from coordinator.transaction.messages import InitProducerIdRequest, Producer
from coordinator.transaction.metadata import LAST_CLIENT_EPOCH, TransactionMetadata
from coordinator.transaction.ports import NewProducerId
from protocol.kafka.batch import NO_PRODUCER_EPOCH
from protocol.kafka.errors import ErrorCode


def may_continue(metadata: TransactionMetadata, expected: Producer) -> bool:
    """Whether the producer has, or had just before, this transactional id. Its epoch is checked when no transaction is
    open."""
    rotated = expected.id == metadata.previous_producer_id and expected.epoch >= LAST_CLIENT_EPOCH
    return metadata.producer_epoch == NO_PRODUCER_EPOCH or expected.id == metadata.producer_id or rotated


def next_producer(
    metadata: TransactionMetadata, request: InitProducerIdRequest, now_ms: int, new_id: NewProducerId
) -> TransactionMetadata | ErrorCode:
    """For a producer that `may_continue`, or whose request has no `expected` id and epoch. No transaction is open."""
    timeout_ms, expected = request.timeout_ms, request.expected
    if expected is None or metadata.producer_epoch == NO_PRODUCER_EPOCH:
        last_epoch = NO_PRODUCER_EPOCH
    elif expected.epoch in (metadata.producer_epoch, metadata.last_epoch):
        last_epoch = expected.epoch
        is_retry = expected.epoch != metadata.producer_epoch
        if is_retry and metadata.producer_epoch <= LAST_CLIENT_EPOCH:
            return metadata.initialized_again(timeout_ms, now_ms)
    else:
        return ErrorCode.PRODUCER_FENCED
    if metadata.is_exhausted:
        return metadata.with_producer_id(new_id(), timeout_ms, now_ms, last_epoch=last_epoch)
    return metadata.with_next_epoch(timeout_ms, now_ms, last_epoch=last_epoch)
