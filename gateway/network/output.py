"""Where a pipeline's answers go."""

from __future__ import annotations

from typing import Any, Protocol

from protocol.kafka.buffers import Buffer


class Output(Protocol):
    """The connection, as its pipeline sees it."""

    @property
    def accepts_answers(self) -> bool:
        """It is open, and its client reads."""

    def write(self, buffers: list[Buffer]) -> None: ...

    def progressed(self) -> None:
        """Requests were run or answered: reading may go on, or the connection be at its end."""

    def logged_in(self) -> None:
        """What comes now is no stranger's."""

    def end(self, reason: str, **facts: Any) -> None: ...


class Gone:
    """In place of a connection that is lost: a pipeline would hold it until garbage is looked for."""

    accepts_answers = False

    def write(self, buffers: list[Buffer]) -> None: ...

    def progressed(self) -> None: ...

    def logged_in(self) -> None: ...

    def end(self, reason: str, **facts: Any) -> None: ...
