"""SaslAuthenticate (key 36), v0 to v2: a token of the client's mechanism.

v1 adds the lifetime of the session (KIP-368); v2 is flexible. `gateway.login.session` answers the requests of a login.
This handler gets only the others, as that of SaslHandshake does.
"""

from __future__ import annotations

from gateway.requests.call import Call
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.login import SaslAuthenticateRequest, SaslAuthenticateResponse

TOO_LATE = "SaslAuthenticate request received after successful authentication"


def handle(call: Call[SaslAuthenticateRequest]) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=TOO_LATE)
