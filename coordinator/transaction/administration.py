"""The administrators' view of transactions: DescribeTransactions and ListTransactions (KIP-664, KIP-994, KIP-1152)."""

from collections.abc import Iterable, Sequence, Set

from coordinator.transaction.messages import (
    DescribedTransaction,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from coordinator.transaction.states import TransactionState
from coordinator.transaction.transactional_id import TransactionalId
from protocol.kafka.errors import ErrorCode

STATE_NAMES = frozenset(state.value for state in TransactionState) | {"Dead", "PrepareEpochFence"}
"""Kafka knows the two added states, too, but never shows a transaction in one of them."""


def describe(entry: TransactionalId) -> DescribedTransaction:
    metadata = entry.metadata
    return DescribedTransaction(
        ErrorCode.NONE,
        entry.name,
        metadata.state.value,
        metadata.timeout_ms,
        metadata.start_ms,
        entry.producer,
        frozenset(entry.partitions),
    )


def list_transactions(
    entries: Iterable[TransactionalId], request: ListTransactionsRequest, now_ms: int
) -> ListTransactionsResponse:
    """State names are case-sensitive. A transactional id without a transaction counts as a very old transaction."""
    found = [entry for entry in entries if _is_wanted(entry, request, now_ms)]
    return ListTransactionsResponse(
        ErrorCode.NONE,
        unknown_states(request.states),
        [ListedTransaction(entry.name, entry.metadata.producer_id, entry.metadata.state.value) for entry in found],
    )


def unknown_states(names: Set[str]) -> Sequence[str]:
    """The names in a filter that are not states of a transaction."""
    return sorted(names - STATE_NAMES)


def _is_wanted(entry: TransactionalId, request: ListTransactionsRequest, now_ms: int) -> bool:
    metadata = entry.metadata
    return (
        (not request.producer_ids or metadata.producer_id in request.producer_ids)
        and (not request.states or metadata.state.value in request.states)
        and (request.longer_than_ms < 0 or now_ms - metadata.start_ms > request.longer_than_ms)
    )
