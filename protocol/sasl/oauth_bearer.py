"""SASL OAUTHBEARER (RFC 7628): a token in one message.

client   gs2 header, ^A, then `key=value` pairs, each ended by ^A, then ^A      n,,^Aauth=Bearer eyJ…^A^A
server   nothing if the token is good; else JSON, which the client acknowledges with ^A, and then the login fails
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from protocol.sasl.failure import LoginFailed

NAME = "OAUTHBEARER"
ACKNOWLEDGEMENT = b"\x01"
"""The client's acknowledgement of a failure."""

_USER = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIR = r"[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01"
_MESSAGE = re.compile(rf"n,(?:a=(?P<authorization>{_USER}))?,\x01(?P<pairs>(?:{_PAIR})*)\x01")
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")


class BearerMessage(NamedTuple):
    authorization_id: str
    """Empty, or the principal of the token."""
    token: str
    extensions: dict[str, str]

    def __repr__(self) -> str:
        return "BearerMessage(…)"


def parse_bearer(message: bytes) -> BearerMessage:
    """Raises LoginFailed."""
    found = _MESSAGE.fullmatch(message.decode("utf-8", "replace"))
    if found is None:
        raise LoginFailed("client message of an unknown form")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01")[:-1])
    auth = _AUTH.fullmatch(pairs.pop("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise LoginFailed("client message without a bearer token")
    authorization_id = (found["authorization"] or "").replace("=2C", ",").replace("=3D", "=")
    return BearerMessage(authorization_id, auth["token"], pairs)


def failure(status: str) -> bytes:
    """The server's response to a token that it rejects; `status` is RFC 6750's, for example `invalid_token`."""
    return json.dumps({"status": status}, separators=(",", ":")).encode()
