"""The effect of EndTxn on a transaction: its next state, or the error of the answer (NONE: it has already ended so)."""

from coordinator.transaction.messages import EndTxnRequest
from coordinator.transaction.metadata import EPOCH_BUMP_VERSION, LAST_CLIENT_EPOCH, TransactionMetadata
from coordinator.transaction.states import END_TXN_V2, TABLE, Event, TransactionState
from coordinator.transaction.transactional_id import TransactionalId
from protocol.kafka.errors import ErrorCode

Step = TransactionState | ErrorCode


def end_step(entry: TransactionalId, request: EndTxnRequest) -> Step:
    if request.client_version >= EPOCH_BUMP_VERSION:
        return ErrorCode.CONCURRENT_TRANSACTIONS if entry.is_busy else _step_v2(entry.metadata, request)
    if request.producer.id != entry.metadata.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if entry.metadata.fences(request.producer.epoch):
        return ErrorCode.PRODUCER_FENCED
    if entry.is_busy:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return TABLE[entry.metadata.state][Event.COMMIT if request.committed else Event.ABORT]


def _step_v2(metadata: TransactionMetadata, request: EndTxnRequest) -> Step:
    """The client's epoch shows which transaction the request ends, because the end of the previous one raised the
    epoch."""
    if _repeats_rotation(metadata, request):
        event = Event.COMMIT_AGAIN if request.committed else Event.ABORT_AGAIN
    elif request.producer.id != metadata.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    elif _repeats_bump(metadata, request):
        event = Event.COMMIT_AGAIN if request.committed else Event.ABORT_AGAIN
    elif not metadata.fences(request.producer.epoch):
        event = Event.COMMIT if request.committed else Event.ABORT
    else:
        return ErrorCode.PRODUCER_FENCED
    return END_TXN_V2[metadata.state].get(event, ErrorCode.PRODUCER_FENCED)


def _repeats_bump(metadata: TransactionMetadata, request: EndTxnRequest) -> bool:
    """No response contains the epoch after LAST_CLIENT_EPOCH: only the coordinator uses it."""
    epoch = request.producer.epoch
    bumped = metadata.client_version >= EPOCH_BUMP_VERSION and metadata.producer_epoch == epoch + 1
    return bumped and metadata.producer_epoch <= LAST_CLIENT_EPOCH


def _repeats_rotation(metadata: TransactionMetadata, request: EndTxnRequest) -> bool:
    rotated = metadata.client_version >= EPOCH_BUMP_VERSION and metadata.producer_epoch == 0
    return rotated and request.producer == (metadata.previous_producer_id, LAST_CLIENT_EPOCH)
