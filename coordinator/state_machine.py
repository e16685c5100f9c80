"""What leads a partition of an internal topic: a state machine over the topic's records, for groups or anything else.

It is pure: requests and the time of day come in, answers and records to append go out. Its caller (`gateway`) keeps
these rules: one call at a time; first `replay` every record of the partition in order, then take all steps of
`finish_loading`; until then it answers that it is loading, and after `resign` that it is not the coordinator.
"""

from collections.abc import Generator
from enum import Enum
from typing import Any, Protocol

from protocol.kafka.errors import ErrorCode


class MalformedRecordError(Exception):
    """The bytes are not a record that this gateway, or the Apache Kafka that it follows, could have written."""


class Phase(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    RESIGNED = "resigned"

    @property
    def error(self) -> ErrorCode:
        """What every request is answered in this phase; NONE if it is looked at."""
        return _PHASE_ERRORS[self]


_PHASE_ERRORS = {
    Phase.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    Phase.ACTIVE: ErrorCode.NONE,
    Phase.RESIGNED: ErrorCode.NOT_COORDINATOR,
}


class Coordinator(Protocol):
    def replay(self, key: bytes, value: bytes | None) -> None:
        """One record, oldest first; None removes the key. Raises MalformedRecordError, and passes the record over."""

    def finish_loading(self, now_ms: int) -> Generator[None, None, Any]:
        """All is replayed: serve, after the last step. Each step is a slice of the work."""

    def resign(self, now_ms: int) -> None:
        """Another coordinator has the partition: clients that still wait for an answer are sent to find it."""

    def pause(self, now_ms: int) -> None:
        """Another coordinator may answer from now on, until `resume`: nothing else is called meanwhile."""

    def resume(self, now_ms: int) -> None:
        """It answers again. What waits for a client gives it its full time from now: it was not answered meanwhile."""

    def next_deadline_ms(self) -> int | None:
        """When to call `tick`. It may come earlier than anything is due."""

    def tick(self, now_ms: int) -> None: ...

    @property
    def has_work(self) -> bool:
        """Call `work` from time to time: each call is a slice of what takes long. Also after `resign`."""

    def work(self) -> None: ...
