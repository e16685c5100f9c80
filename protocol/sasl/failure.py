"""Why a login fails."""

from __future__ import annotations


class LoginFailed(Exception):
    """The credentials of the client are wrong, or its messages violate the mechanism."""

    def __init__(self, reason: str, answer: str | None = None) -> None:
        """`reason` is for the log; `answer` for the client, None if the client only learns that the login failed."""
        super().__init__(reason)
        self.answer = answer
