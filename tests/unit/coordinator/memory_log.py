"""The log of a coordinator under test."""

from collections.abc import Sequence

from coordinator.log import OnAppended, Record
from protocol.kafka.errors import ErrorCode


class MemoryLog:
    """An internal log: appends end when the test says so. One that is irrevocable is never refused for lack of room."""

    def __init__(self) -> None:
        self.durable: list[Record] = []
        self.waiting: list[tuple[Sequence[Record], OnAppended]] = []
        self._irrevocable: list[OnAppended] = []

    max_record_bytes = 5 * 1024 * 1024

    def append(self, records: Sequence[Record], on_done: OnAppended, *, irrevocable: bool = False) -> None:
        self.waiting.append((records, on_done))
        if irrevocable:
            self._irrevocable.append(on_done)

    def next_outcome(self, error: ErrorCode) -> ErrorCode:
        """The outcome of the next append if the log wants to end it so."""
        is_refused = error is ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE if is_refused and self.waiting[0][1] in self._irrevocable else error

    def finish_one(self, now_ms: int, error: ErrorCode = ErrorCode.NONE) -> None:
        error = self.next_outcome(error)
        records, on_done = self.waiting.pop(0)
        if error is ErrorCode.NONE:
            self.durable += records
        on_done(error, now_ms)
