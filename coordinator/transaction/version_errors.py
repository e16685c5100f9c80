"""Error codes that older versions of an API do not have, and the codes that replace them (KIP-588, KIP-890).

Used by the handlers: the coordinator answers with the codes of the newest version.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from protocol.kafka.errors import ErrorCode


class Api(Enum):
    INIT_PRODUCER_ID = "InitProducerId"
    ADD_PARTITIONS_TO_TXN = "AddPartitionsToTxn"
    ADD_OFFSETS_TO_TXN = "AddOffsetsToTxn"
    END_TXN = "EndTxn"
    PRODUCE = "Produce"
    TXN_OFFSET_COMMIT = "TxnOffsetCommit"


class Substitute(NamedTuple):
    """Versions below `since` get the `older` code instead of `error`. If `since` is None, all versions get it."""

    error: ErrorCode
    since: int | None
    older: ErrorCode


def _fenced(since: int | None) -> Substitute:
    return Substitute(ErrorCode.PRODUCER_FENCED, since, ErrorCode.INVALID_PRODUCER_EPOCH)


_UNREACHED = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Errors for which a partition's leader answers NOT_ENOUGH_REPLICAS, which producers retry: it has no answer of the
coordinator."""

SUBSTITUTES: Mapping[Api, tuple[Substitute, ...]] = {
    Api.INIT_PRODUCER_ID: (_fenced(4),),
    Api.ADD_PARTITIONS_TO_TXN: (_fenced(2),),
    Api.ADD_OFFSETS_TO_TXN: (_fenced(2),),
    Api.END_TXN: (_fenced(2),),
    Api.PRODUCE: (
        _fenced(None),
        Substitute(ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.INVALID_TXN_STATE),
        Substitute(ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        *(Substitute(error, None, ErrorCode.NOT_ENOUGH_REPLICAS) for error in _UNREACHED),
    ),
    Api.TXN_OFFSET_COMMIT: (
        _fenced(None),
        Substitute(ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.INVALID_TXN_STATE),
        Substitute(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 2, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ),
}


def error_for_version(api: Api, version: int, error: ErrorCode) -> ErrorCode:
    for substitute in SUBSTITUTES[api]:
        if substitute.error is error and (substitute.since is None or version < substitute.since):
            return substitute.older
    return error
