"""SaslHandshake (key 17), v0 and v1: the client names its mechanism. With v1 tokens follow in SaslAuthenticate.

`gateway.login.session` answers the requests of a login. This handler gets only requests of clients that must not log
in: on a listener without SASL, or again before the session needs it.
"""

from __future__ import annotations

from gateway.requests.call import Call
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.login import SaslHandshakeRequest, SaslHandshakeResponse


def handle(call: Call[SaslHandshakeRequest]) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
