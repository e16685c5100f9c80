"""InitProducerId (key 22), v0-v5. v2 flexible; v3 the caller's own id and epoch (KIP-360); v4 PRODUCER_FENCED.

Idempotent producers get an id of their own. Transactional ids are refused until transactions are served.
"""

from __future__ import annotations

from gateway.requests.call import Call
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.transactions import InitProducerIdRequest, InitProducerIdResponse

OWN_ID_VERSION = 3


def handle(call: Call[InitProducerIdRequest]) -> InitProducerIdResponse:
    request = call.request
    if request.transactional_id is not None:
        code = (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if request.transactional_id else ErrorCode.INVALID_REQUEST
        )
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    if call.version >= OWN_ID_VERSION and (request.producer_id == -1) != (request.producer_epoch == -1):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=call.cluster.producer_ids.allocate(), producer_epoch=0)
