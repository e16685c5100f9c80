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

MAX_PAIRS = 64
"""A client has not logged in yet: what it sends must cost little. Kafka has no bound."""
MAX_USER_CHARS = 4_096

_SEPARATOR = "\x01"
_USER = re.compile(r"a=(?P<user>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+)")
# No step is taken back: that would cost time, and find nothing.
_PAIR = re.compile(r"(?P<key>[A-Za-z]++)=(?P<value>[\x21-\x7e \t\r\n]++)")
_AUTH = re.compile(r"(?P<scheme>\w++) ++(?P<token>[-_~+/.a-zA-Z0-9]++=*+)")


class BearerMessage(NamedTuple):
    authorization_id: str
    """Empty, or the principal of the token."""
    token: str
    extensions: dict[str, str]

    def __repr__(self) -> str:
        return "BearerMessage(…)"


def parse_bearer(message: bytes) -> BearerMessage:
    """Raises LoginFailed."""
    flag, comma, text = message.decode("utf-8", "replace").partition(",")
    user, _, text = text.partition(",")
    nothing, *texts = text.split(_SEPARATOR, MAX_PAIRS + 3)
    if (flag + comma, nothing, texts[-2:]) != ("n,", "", ["", ""]) or len(texts) > MAX_PAIRS + 2:
        raise LoginFailed("client message of an unknown form")
    authorization_id = _user(user)
    pairs = dict(map(_pair, texts[:-2]))
    auth = _AUTH.fullmatch(pairs.pop("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise LoginFailed("client message without a bearer token")
    return BearerMessage(authorization_id, auth["token"], pairs)


def _user(text: str) -> str:
    if not text:
        return ""
    found = _USER.fullmatch(text) if len(text) <= MAX_USER_CHARS else None
    if found is None:
        raise LoginFailed("client message of an unknown form")
    return found["user"].replace("=2C", ",").replace("=3D", "=")


def _pair(text: str) -> tuple[str, str]:
    found = _PAIR.fullmatch(text)
    if found is None:
        raise LoginFailed("client message of an unknown form")
    return found["key"], found["value"]


def failure(status: str) -> bytes:
    """The server's response to a token that it rejects; `status` is RFC 6750's, for example `invalid_token`."""
    return json.dumps({"status": status}, separators=(",", ":")).encode()
