"""InitProducerId (key 22), v0-v5. v2 flexible; v3 the caller's own id and epoch (KIP-360); v4 PRODUCER_FENCED.

Without a transactional id, the producer is idempotent and gets a new id. v5 allows TRANSACTION_ABORTABLE (KIP-890),
which Kafka never returns here.
"""

from __future__ import annotations

from functools import partial

from coordinator.fleet.messages import NO_TRANSACTIONS
from coordinator.transaction import messages
from coordinator.transaction.messages import NO_PRODUCER, Producer
from coordinator.transaction.version_errors import Api, error_for_version
from gateway.requests.call import Call
from gateway.requests.reply import Reply
from protocol.kafka.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.transactions import InitProducerIdRequest, InitProducerIdResponse


def handle(call: Call[InitProducerIdRequest]) -> Reply:
    request = call.request
    own = Producer(request.producer_id, request.producer_epoch)
    if (own.id == NO_PRODUCER_ID) != (own.epoch == NO_PRODUCER_EPOCH):
        return Reply(_response(call, messages.InitProducerIdResponse(ErrorCode.INVALID_REQUEST)))
    if request.transactional_id is None:
        return Reply(InitProducerIdResponse(producer_id=call.cluster.producer_ids.allocate(), producer_epoch=0))
    # Leaders of older versions would accept batches that they must refuse.
    if call.cluster.fleet.transaction_version == NO_TRANSACTIONS:
        return Reply(_response(call, messages.InitProducerIdResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE)))
    asked = messages.InitProducerIdRequest(
        request.transactional_id, request.transaction_timeout_ms, expected=None if own == NO_PRODUCER else own
    )
    return Reply.later(
        call.cluster.transactions.ask(
            asked.transactional_id,
            lambda coordinator, now_ms, reply: coordinator.init_producer_id(asked, now_ms, reply),
            partial(_response, call),
        )
    )


def _response(call: Call[InitProducerIdRequest], answer: messages.InitProducerIdResponse) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=error_for_version(Api.INIT_PRODUCER_ID, call.version, answer.error),
        producer_id=answer.producer.id,
        producer_epoch=answer.producer.epoch,
    )
