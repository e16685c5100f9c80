"""SASL PLAIN (RFC 4616): one message, `[authorization id] NUL user NUL password`, in UTF-8."""

from __future__ import annotations

from typing import NamedTuple

from protocol.sasl.failure import LoginFailed

NAME = "PLAIN"
FOREIGN_ID = "Authentication failed: Client requested an authorization id that is different from username"
WRONG = "Authentication failed: Invalid username or password"


class PlainMessage(NamedTuple):
    authorization_id: str
    """Empty, or equal to the user name."""
    user: str
    password: str

    def __repr__(self) -> str:
        return f"PlainMessage(user={self.user!r})"


def parse_plain(message: bytes, max_name_bytes: int) -> PlainMessage:
    """Raises LoginFailed, with the same text as Kafka. A longer name is nobody's: to look for it would cost time."""
    parts = message.split(b"\0", 3)
    if len(parts) != 3:
        text = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
        raise LoginFailed(text, text)
    if any(len(name) > max_name_bytes for name in parts[:2]):
        raise LoginFailed("name too long", WRONG)
    return PlainMessage(*(part.decode("utf-8", "replace") for part in parts))
