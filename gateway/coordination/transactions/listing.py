"""The transactions of one partition of `__transaction_state`: there may be hundreds of thousands."""

from __future__ import annotations

from coordinator.transaction.coordinator import TransactionCoordinator
from coordinator.transaction.messages import ListedTransaction, ListTransactionsRequest, ListTransactionsResponse
from gateway.coordination.partition.coordinator_partition import CoordinatorPartition
from gateway.fan_out import in_steps
from protocol.kafka.errors import ErrorCode


async def list_transactions(
    partition: CoordinatorPartition[TransactionCoordinator], asked: ListTransactionsRequest
) -> ListTransactionsResponse:
    """Other work has its turn in between. Ids that are new by then, or gone, may be left out."""
    transactions: list[ListedTransaction] = []
    ids = partition.run(lambda coordinator, now_ms: coordinator.transactional_ids())
    async for some in in_steps(ids or [""]):  # also without ids: the coordinator may not serve
        listed: ListTransactionsResponse = partition.run(
            lambda coordinator, now_ms, some=some: coordinator.list_transactions(asked, now_ms, some)  # type: ignore[misc]
        )
        if listed.error:
            return listed
        transactions += listed.transactions
    return ListTransactionsResponse(ErrorCode.NONE, (), transactions)
