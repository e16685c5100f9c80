"""The interface of a coordinator: a state machine over the records of one partition of an internal topic.

It is pure: requests and the time of day come in, answers and records to append go out. Its caller (`gateway`) follows
these rules. One call at a time. First `replay` every record of the partition in order, then take all steps of
`finish_loading`. Until then it answers that it is loading, and after `resign` that it is not the coordinator.
"""

from collections.abc import Generator
from enum import Enum
from typing import Any, Protocol

from protocol.kafka.errors import ErrorCode


class MalformedRecordError(Exception):
    """The bytes are not a record that this gateway, or the Apache Kafka version that it follows, could have written."""


class Phase(Enum):
    LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ACTIVE = ErrorCode.NONE
    RESIGNED = ErrorCode.NOT_COORDINATOR

    def __init__(self, error: ErrorCode) -> None:
        self.error = error
        """The error that every request gets in this phase; NONE if requests are processed."""


class Coordinator(Protocol):
    def replay(self, key: bytes, value: bytes | None) -> None:
        """One record, oldest first; None removes the key. Raises MalformedRecordError, and skips the record."""

    def finish_loading(self, now_ms: int) -> Generator[None, None, Any]:
        """Replay is complete. The coordinator serves after the last step. Each step is a slice of the work."""

    def resign(self, now_ms: int) -> None:
        """Another coordinator has the partition. Waiting clients get NOT_COORDINATOR and look for it."""

    def pause(self, now_ms: int) -> None:
        """Another coordinator may answer from now on, until `resume`. No other method is called in between."""

    def resume(self, now_ms: int) -> None:
        """It answers again. Timers that wait for a client start again: the client got no answers in between."""

    def next_deadline_ms(self) -> int | None:
        """When to call `tick`. It may be earlier than the first due timer."""

    def tick(self, now_ms: int) -> None:
        """Run the timers that are due. If there are very many, some: then the next deadline has passed, too."""

    @property
    def has_work(self) -> bool:
        """Call `work` from time to time, also after `resign`: each call is a slice of long work."""

    def work(self) -> None: ...
