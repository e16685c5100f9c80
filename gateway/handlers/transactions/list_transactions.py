"""ListTransactions (key 66), v0-v2 (KIP-664). v1 minimum duration (KIP-994); v2 a pattern of ids (KIP-1152)."""

from __future__ import annotations

import asyncio

from coordinator.transaction import messages
from coordinator.transaction.administration import unknown_states
from gateway.requests.call import Call
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.transactions import ListTransactionsRequest, ListTransactionsResponse

_Row = ListTransactionsResponse.TransactionState


async def handle(call: Call[ListTransactionsRequest]) -> ListTransactionsResponse:
    """Transactions that are coordinated here; a retriable error if the list is incomplete."""
    request = call.request
    asked = messages.ListTransactionsRequest(
        frozenset(request.producer_id_filters),
        frozenset(request.state_filters),
        request.duration_filter,
        request.transactional_id_pattern,
    )
    coordinators = call.cluster.transactions
    response = ListTransactionsResponse(
        error_code=ErrorCode.NONE if coordinators.partitions else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        unknown_state_filters=[*unknown_states(asked.states)],
    )
    for number, partition in enumerate(coordinators.partitions):
        if not coordinators.leads(number):
            continue
        listed = partition.run(lambda coordinator, now_ms: coordinator.list_transactions(asked, now_ms))
        if listed.error:
            # Without the lease it answers NOT_COORDINATOR although no other gateway leads: the client asks again.
            not_loading = listed.error is ErrorCode.NOT_COORDINATOR
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE if not_loading else listed.error
            return ListTransactionsResponse(error_code=error)
        response.transaction_states += [
            _Row(transactional_id=each.transactional_id, producer_id=each.producer_id, transaction_state=each.state)
            for each in listed.transactions
        ]
        await asyncio.sleep(0)
    return response
