"""AddPartitionsToTxn (key 24), v0-v5.

v1 throttle time; v2 PRODUCER_FENCED; v3 flexible; v4 several transactions, and verification without adding, for
leaders of partitions (KIP-890); v5 TRANSACTION_ABORTABLE.
If one partition is unknown or of an internal topic, none is added: the others get OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from coordinator.topics import TopicPartition
from coordinator.transaction.messages import AddPartitionsRequest, Producer
from coordinator.transaction.metadata import EPOCH_BUMP_VERSION
from coordinator.transaction.version_errors import Api, error_for_version
from gateway.busy_time import run_part
from gateway.coordination.transactions.adding import add_at_once, add_when_free
from gateway.fan_out import fan_out, sliced
from gateway.requests.call import Call
from gateway.requests.group_topics import PartitionCounts, cached_counts, look_up_counts
from gateway.requests.reply import Reply
from gateway.topics.topic_names import INTERNAL_TOPICS, TRANSACTION_STATE
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

BATCHED_VERSION = 4
TRANSACTIONS_AT_ONCE = 1_000
"""A gateway verifies up to this number at the same time, so that they share an entry of the coordinator's log."""
TOPICS_AT_ONCE = 1_000
"""The topics that are read without giving others their turn."""

_Response = AddPartitionsToTxnResponse
_Topic = _Response.AddPartitionsToTxnTopicResult


class _NamesPartitions(Protocol):
    """A topic in a request of any version."""

    name: str
    partitions: list[int]


@dataclass
class _Partitions:
    """Those of a topic."""

    name: str
    partitions: list[int]


class _Outcome(NamedTuple):
    """As in Kafka, the response has the request's rows if the coordinator was to add them together."""

    codes: Mapping[TopicPartition, ErrorCode]
    names_each_once: bool


class _Transaction(NamedTuple):
    """A transaction in a request of any version."""

    transactional_id: str
    producer: Producer
    topics: Sequence[_NamesPartitions]
    verify_only: bool


def handle(call: Call[AddPartitionsToTxnRequest]) -> Reply:
    is_batched = call.version >= BATCHED_VERSION
    if len(call.request.transactions) > TRANSACTIONS_AT_ONCE:
        return Reply.after(_look_up_all(call, is_batched=is_batched))
    transactions = [*_transactions(call.request, is_batched=is_batched)]
    if not is_batched:
        only = transactions[0]
        call.cluster.producer_connections.record_use(only.transactional_id, only.producer, call.client.number)
    if sum(len(transaction.topics) for transaction in transactions) <= TOPICS_AT_ONCE:
        counts = cached_counts(call, _highest_partitions(topic for each in transactions for topic in each.topics))
        if counts is not None:
            return _add_all(call, transactions, counts)
    return Reply.after(_look_up(call, transactions))


async def _look_up_all(call: Call[AddPartitionsToTxnRequest], *, is_batched: bool) -> Reply:
    return await _look_up(call, [each async for each in sliced(_transactions(call.request, is_batched=is_batched))])


async def _look_up(call: Call, transactions: Sequence[_Transaction]) -> Reply:
    highest: dict[str, int] = {}
    async for each in sliced(transactions):
        async for topic in sliced(each.topics):
            highest[topic.name] = max(highest.get(topic.name, 0), max(topic.partitions, default=0))
    counts = await look_up_counts(call, highest)
    call.check_age()  # again, because the topics were looked up in the meantime
    return _add_all(call, transactions, counts)


def _transactions(request: AddPartitionsToTxnRequest, *, is_batched: bool) -> Iterator[_Transaction]:
    if not is_batched:
        producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        yield _Transaction(request.v3_and_below_transactional_id, producer, request.v3_and_below_topics, False)
    for row in request.transactions:
        producer = Producer(row.producer_id, row.producer_epoch)
        yield _Transaction(row.transactional_id, producer, row.topics, row.verify_only)


def _highest_partitions(topics: Iterable[_NamesPartitions]) -> dict[str, int]:
    highest: dict[str, int] = {}
    for topic in topics:
        highest[topic.name] = max([highest.get(topic.name, 0), *topic.partitions])
    return highest


def _add_all(call: Call, transactions: Sequence[_Transaction], counts: PartitionCounts) -> Reply:
    return Reply.later(run_part(_response(call, transactions, counts)))


async def _response(
    call: Call, transactions: Sequence[_Transaction], counts: PartitionCounts
) -> AddPartitionsToTxnResponse:
    outcomes = await fan_out(lambda each: _add(call, each, counts), transactions, at_once=TRANSACTIONS_AT_ONCE)
    if call.version < BATCHED_VERSION:
        return _Response(results_by_topic_v3_and_below=await _rows(call, transactions[0], outcomes[0]))
    return _Response(
        results_by_transaction=[
            _Response.AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=await _rows(call, transaction, mine),  # type: ignore[arg-type]  # the same fields
            )
            async for transaction, mine in sliced(zip(transactions, outcomes, strict=True))
        ]
    )


async def _add(call: Call, transaction: _Transaction, counts: PartitionCounts) -> _Outcome:
    # Nobody may write to internal topics: markers for them have no leader, and the transaction would never end. Leaders
    # add partitions of groups in behalf of clients.
    refused = {TRANSACTION_STATE} if call.version >= BATCHED_VERSION else INTERNAL_TOPICS
    errors = {
        TopicPartition(topic.name, number): ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic.name in refused
        else counts.error(topic.name, number)
        async for topic in sliced(transaction.topics)
        async for number in sliced(topic.partitions)
    }
    if any(errors.values()):
        codes = {each: error or ErrorCode.OPERATION_NOT_ATTEMPTED async for each, error in sliced(errors.items())}
        return _Outcome(codes, names_each_once=True)
    partitions = frozenset(errors)
    asked = AddPartitionsRequest(
        transaction.transactional_id,
        transaction.producer,
        partitions,
        client_version=EPOCH_BUMP_VERSION if call.version >= BATCHED_VERSION else 0,
    )
    if transaction.verify_only:
        verified = call.cluster.transactions.run(
            asked.transactional_id, lambda coordinator, now_ms: coordinator.verify_partitions(asked)
        )
        return _Outcome(verified, names_each_once=True)
    add = add_at_once if call.version >= BATCHED_VERSION else add_when_free
    error = await add(call.cluster.transactions, asked)
    return _Outcome(dict.fromkeys(partitions, error), names_each_once=False)


async def _rows(call: Call, transaction: _Transaction, outcome: _Outcome) -> list[_Topic]:
    codes = outcome.codes
    topics: Sequence[_NamesPartitions] = transaction.topics
    if outcome.names_each_once:
        topics = await _each_once(codes)
    return [
        _Topic(
            name=topic.name,
            results_by_partition=[
                _Topic.AddPartitionsToTxnPartitionResult(
                    partition_index=number,
                    partition_error_code=_code(call, codes[TopicPartition(topic.name, number)]),
                )
                async for number in sliced(topic.partitions)
            ],
        )
        async for topic in sliced(topics)
    ]


async def _each_once(partitions: Iterable[TopicPartition]) -> list[_Partitions]:
    numbers: dict[str, list[int]] = {}
    async for each in sliced(partitions):
        numbers.setdefault(each.topic, []).append(each.partition)
    return [_Partitions(name, its_numbers) async for name, its_numbers in sliced(numbers.items())]


def _code(call: Call, error: ErrorCode) -> ErrorCode:
    code = error_for_version(Api.ADD_PARTITIONS_TO_TXN, call.version, error)
    call.count_error(code)
    return code
