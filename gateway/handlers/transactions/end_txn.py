"""EndTxn (key 26), v0-v5. v1 throttle time; v2 PRODUCER_FENCED; v3 flexible; v5 raises the epoch (KIP-890).

The response is sent when the result is certain; the markers are written after it. Below v5 a producer may have begun
its next transaction in the same epoch: an EndTxn on a connection that is not its newest one closes that connection.
"""

from __future__ import annotations

from functools import partial

from coordinator.transaction import messages
from coordinator.transaction.messages import Producer
from coordinator.transaction.metadata import EPOCH_BUMP_VERSION
from coordinator.transaction.version_errors import Api, error_for_version
from gateway.requests.call import Call, ClosesConnection
from gateway.requests.reply import Reply
from protocol.kafka.messages.transactions import EndTxnRequest, EndTxnResponse

BUMPS_VERSION = 5


def handle(call: Call[EndTxnRequest]) -> Reply:
    request = call.request
    producer = Producer(request.producer_id, request.producer_epoch)
    connections = call.cluster.producer_connections
    is_newest = connections.record_use(request.transactional_id, producer, call.client.number)
    if not is_newest and call.version < BUMPS_VERSION:
        raise ClosesConnection("the producer uses a newer connection")
    asked = messages.EndTxnRequest(
        request.transactional_id,
        producer,
        request.committed,
        client_version=EPOCH_BUMP_VERSION if call.version >= BUMPS_VERSION else 0,
    )
    return Reply.later(
        call.cluster.transactions.ask(
            asked.transactional_id,
            lambda coordinator, now_ms, reply: coordinator.end_transaction(asked, now_ms, reply),
            partial(_response, call),
        )
    )


def _response(call: Call[EndTxnRequest], answer: messages.EndTxnResponse) -> EndTxnResponse:
    return EndTxnResponse(
        error_code=error_for_version(Api.END_TXN, call.version, answer.error),
        producer_id=answer.producer.id,
        producer_epoch=answer.producer.epoch,
    )
