"""Where a pipeline's answers go."""

from __future__ import annotations

from typing import Any, Protocol

from protocol.kafka.buffers import Buffer


class Output(Protocol):
    """The connection, as its pipeline sees it."""

    accepts_answers: bool
    """The connection is open, and its client reads."""
    is_reading: bool
    """The connection reads what the client sends."""

    def write(self, buffers: list[Buffer]) -> None: ...

    def progressed(self) -> None:
        """Requests were run or answered: check whether the connection may read."""

    def logged_in(self) -> None:
        """The client has logged in: the limits for unauthenticated clients no longer apply."""

    def limit_requests(self, size_bytes: int) -> None:
        """No request of the client may be larger."""

    def end(self, reason: str, **facts: Any) -> None: ...


class Gone:
    """Replaces a lost connection: the pipeline would keep the connection in memory until the garbage collector runs."""

    accepts_answers = False
    is_reading = True
    """There is nothing to regulate."""

    def write(self, buffers: list[Buffer]) -> None: ...

    def progressed(self) -> None: ...

    def logged_in(self) -> None: ...

    def limit_requests(self, size_bytes: int) -> None: ...

    def end(self, reason: str, **facts: Any) -> None: ...
