"""Why a login fails."""

from __future__ import annotations


class LoginFailed(Exception):
    """The client is not whom it says it is, or does not speak its mechanism."""

    def __init__(self, reason: str, answer: str | None = None) -> None:
        """`reason` is for the log; `answer` for the client, None if all that it hears is that the login failed."""
        super().__init__(reason)
        self.answer = answer
