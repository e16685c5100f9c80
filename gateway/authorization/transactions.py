"""Guards of transactions: TRANSACTIONAL_ID Write and Describe, and the topics and groups that take part."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter

from gateway.authorization.guard import (
    NeedsEach,
    chain,
    changed,
    changing,
    may,
    may_cluster,
    needs,
    needs_cluster,
    refusal,
    showing,
    with_error,
)
from gateway.fan_out import sliced
from gateway.requests.call import Call, Handle
from gateway.requests.denials import DENIED
from gateway.requests.reply import Reply
from gateway.topics.topic_names import INTERNAL_TOPICS
from protocol.kafka.acl import CLUSTER_NAME, AclOperation, ResourceType
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
)

_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_NO_ID = -1


def _may(call: Call, operation: AclOperation, transactional_id: str) -> bool:
    return may(call, operation, ResourceType.TRANSACTIONAL_ID, transactional_id)


def init_producer_id(call: Call[InitProducerIdRequest], handle: Handle) -> Reply:
    transactional_id = call.request.transactional_id
    if transactional_id is None:
        if _may_be_idempotent(call):
            return handle(call)
        right = AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME
    else:
        right = AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
        if may(call, *right):
            return handle(call)
    call.count_denied(*right)
    code = DENIED[right[1]]
    return Reply(InitProducerIdResponse(error_code=code, producer_id=_NO_ID, producer_epoch=_NO_ID))


def _may_be_idempotent(call: Call) -> bool:
    """A principal that may write to some topic has this right, too (KIP-679)."""
    return may_cluster(call, AclOperation.IDEMPOTENT_WRITE) or call.context.policy.allows_any(
        AclOperation.WRITE, ResourceType.TOPIC
    )


# AddPartitionsToTxn

FIRST_BROKER_VERSION = 4
"""From this version on, leaders send the request on behalf of clients."""
_Result = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult


def add_partitions_to_txn(call: Call[AddPartitionsToTxnRequest], handle: Handle) -> Reply:
    guard = _of_brokers if call.version >= FIRST_BROKER_VERSION else _of_client
    return guard(call, handle)


_of_brokers = needs_cluster(AclOperation.CLUSTER_ACTION, with_error)


def _of_client(call: Call[AddPartitionsToTxnRequest], handle: Handle) -> Reply:
    """If one topic is denied, none is added."""
    request = call.request
    if not _may(call, AclOperation.WRITE, request.v3_and_below_transactional_id):
        call.count_denied(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.v3_and_below_transactional_id)
        return refusal(call, partial(_answer, request, lambda _topic, _partition: _DENIED))
    return Reply.after(_of_client_for_topics(call, handle))


async def _of_client_for_topics(call: Call[AddPartitionsToTxnRequest], handle: Handle) -> Reply:
    request, denied, counts = call.request, set[str](), dict[str, int]()
    async for topic in sliced(request.v3_and_below_topics):
        if topic.name not in denied and not _may_add(call, topic.name):
            call.count_denied(AclOperation.WRITE, ResourceType.TOPIC, topic.name)
            denied.add(topic.name)
        elif (known := call.cluster.topics.cached(topic.name)) is not None:
            counts[topic.name] = known.partitions
    if not denied:
        return handle(call)

    def code(topic: str, partition: int) -> ErrorCode:
        if topic in denied:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic in counts and not 0 <= partition < counts[topic]:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.OPERATION_NOT_ATTEMPTED

    return refusal(call, partial(_answer, request, code))


def _may_add(call: Call, topic: str) -> bool:
    return topic not in INTERNAL_TOPICS and may(call, AclOperation.WRITE, ResourceType.TOPIC, topic)


def _answer(request: AddPartitionsToTxnRequest, code: Callable[[str, int], ErrorCode]) -> AddPartitionsToTxnResponse:
    row = _Result.AddPartitionsToTxnPartitionResult
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            _Result(
                name=topic.name,
                results_by_partition=[
                    row(partition_index=number, partition_error_code=code(topic.name, number))
                    for number in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


# The others

_writes = needs(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, attrgetter("transactional_id"), with_error)
END_TXN = _writes
ADD_OFFSETS_TO_TXN = chain(_writes, needs(AclOperation.READ, ResourceType.GROUP, attrgetter("group_id"), with_error))


def list_transactions(call: Call[ListTransactionsRequest], handle: Handle) -> Reply:
    return showing(
        handle(call.asking(call.request)),
        "transaction_states",
        lambda row: _may(call, AclOperation.DESCRIBE, row.transactional_id),
    )


_State = DescribeTransactionsResponse.TransactionState


def _refused_description(call: Call, transactional_id: str) -> _State:
    call.count_denied(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    return _State(transactional_id=transactional_id, error_code=_DENIED)


def _describable_topics(call: Call, handle: Handle) -> Reply:
    def shown(state: _State) -> _State:
        rows = [row for row in state.topics if may(call, AclOperation.DESCRIBE, ResourceType.TOPIC, row.topic)]
        return changed(state, "topics", rows)  # type: ignore[no-any-return]

    return changing(handle(call.asking(call.request)), "transaction_states", shown)


DESCRIBE_TRANSACTIONS = chain(
    NeedsEach(
        "transactional_ids", lambda call, row: _may(call, AclOperation.DESCRIBE, row), "transaction_states",
        _refused_description,
    ),
    _describable_topics,
)  # fmt: skip
