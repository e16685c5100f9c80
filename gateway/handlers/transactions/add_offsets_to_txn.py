"""AddOffsetsToTxn (key 25), v0-v4. v1 throttle time; v2 PRODUCER_FENCED; v3 flexible.

Adds the group's partition of `__consumer_offsets` to the transaction, whose marker will be written there. v4 allows
TRANSACTION_ABORTABLE (KIP-890), which Kafka never returns here.
"""

from __future__ import annotations

from coordinator.topics import TopicPartition
from coordinator.transaction.messages import AddPartitionsRequest, Producer
from coordinator.transaction.version_errors import Api, error_for_version
from gateway.busy_time import run_part
from gateway.coordination.transactions.adding import add_when_free
from gateway.requests.call import Call
from gateway.requests.reply import Reply
from gateway.topics.topic_names import CONSUMER_OFFSETS
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.transactions import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


def handle(call: Call[AddOffsetsToTxnRequest]) -> Reply:
    request = call.request
    number = call.cluster.groups.partition_of(request.group_id)
    if number is None:  # The topic is being created.
        return Reply(AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    producer = Producer(request.producer_id, request.producer_epoch)
    call.cluster.producer_connections.record_use(request.transactional_id, producer, call.client.number)
    asked = AddPartitionsRequest(
        request.transactional_id,
        producer,
        frozenset({TopicPartition(CONSUMER_OFFSETS, number)}),
    )

    return Reply.later(run_part(_add(call, asked)))


async def _add(call: Call[AddOffsetsToTxnRequest], asked: AddPartitionsRequest) -> AddOffsetsToTxnResponse:
    error = await add_when_free(call.cluster.transactions, asked)
    return AddOffsetsToTxnResponse(error_code=error_for_version(Api.ADD_OFFSETS_TO_TXN, call.version, error))
