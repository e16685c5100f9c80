"""DescribeTransactions (key 65), v0 (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from coordinator.topics import TopicPartition
from coordinator.transaction.messages import DescribedTransaction
from gateway.requests.call import Call
from gateway.requests.repeated import answer_each
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.transactions import DescribeTransactionsRequest, DescribeTransactionsResponse

_Row = DescribeTransactionsResponse.TransactionState


async def handle(call: Call[DescribeTransactionsRequest]) -> DescribeTransactionsResponse:
    rows = await answer_each(
        call.request.transactional_ids,
        lambda name: _row(call, _describe(call, name)),
        lambda name: _Row(error_code=ErrorCode.INVALID_REQUEST, transactional_id=name),
    )
    return DescribeTransactionsResponse(transaction_states=rows)


def _describe(call: Call, transactional_id: str) -> DescribedTransaction:
    return call.cluster.transactions.run(
        transactional_id, lambda coordinator, now_ms: coordinator.describe(transactional_id)
    )


def _row(call: Call, transaction: DescribedTransaction) -> _Row:
    if transaction.error:
        call.count_error(transaction.error)
        return _Row(error_code=transaction.error, transactional_id=transaction.transactional_id)
    return _Row(
        transactional_id=transaction.transactional_id,
        transaction_state=transaction.state,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer.id,
        producer_epoch=transaction.producer.epoch,
        topics=[*_topics(transaction)],
    )


def _topics(transaction: DescribedTransaction) -> Iterator[_Row.TopicData]:
    def topic(partition: TopicPartition) -> str:
        return partition.topic

    for name, partitions in groupby(sorted(transaction.partitions), topic):
        yield _Row.TopicData(topic=name, partitions=[number for _, number in partitions])
