"""ListTransactions (key 66), v0-v2 (KIP-664). v1 minimum duration (KIP-994); v2 a pattern of ids (KIP-1152)."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.topic_regex import InvalidRegexError
from coordinator.transaction import messages
from coordinator.transaction.administration import STATE_NAMES
from gateway.coordination.expressions import Expression
from gateway.coordination.partition.coordinators import retriable_error
from gateway.coordination.transactions.listing import list_transactions
from gateway.fan_out import sliced
from gateway.requests.call import Call
from gateway.requests.repeated import distinct_of
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.transactions import ListTransactionsRequest, ListTransactionsResponse

_Row = ListTransactionsResponse.TransactionState


async def handle(call: Call[ListTransactionsRequest]) -> ListTransactionsResponse:
    """Transactions that are coordinated here; a retriable error if the list is incomplete."""
    request = call.request
    states = await distinct_of(request.state_filters)
    unknown = [state async for state in sliced(states) if state not in STATE_NAMES]
    asked = messages.ListTransactionsRequest(
        frozenset({number async for number in sliced(request.producer_id_filters)}),
        STATE_NAMES.intersection(states) | {*unknown[:1]},  # one that no transaction is in stands for all of them
        request.duration_filter,
    )
    coordinators = call.cluster.transactions
    response = ListTransactionsResponse(
        error_code=ErrorCode.NONE if coordinators.partitions else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        unknown_state_filters=unknown,
    )
    expression = Expression(request.transactional_id_pattern) if request.transactional_id_pattern else None
    for number, partition in enumerate(coordinators.partitions):
        if not coordinators.leads(number):
            continue
        listed = await list_transactions(partition, asked)
        if listed.error:
            return ListTransactionsResponse(error_code=retriable_error(listed.error))
        try:
            found = await _matching(listed.transactions, expression)
        except InvalidRegexError:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        response.transaction_states += [
            _Row(transactional_id=each.transactional_id, producer_id=each.producer_id, transaction_state=each.state)
            async for each in sliced(found)
        ]
    return response


async def _matching(
    listed: Sequence[messages.ListedTransaction], expression: Expression | None
) -> Sequence[messages.ListedTransaction]:
    """Those whose whole id matches the RE2 expression (KIP-1152). Raises InvalidRegexError."""
    if expression is None:
        return listed
    names = await expression.matching([each.transactional_id async for each in sliced(listed)])
    return [each async for each in sliced(listed) if each.transactional_id in names]
