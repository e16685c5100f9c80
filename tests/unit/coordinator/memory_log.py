"""The log of a coordinator under test."""

from collections.abc import Sequence

from coordinator.log import OnAppended, Record
from protocol.kafka.errors import ErrorCode


class MemoryLog:
    """An internal log: appends end when the test says so."""

    def __init__(self) -> None:
        self.durable: list[Record] = []
        self.waiting: list[tuple[Sequence[Record], OnAppended]] = []

    def append(self, records: Sequence[Record], on_done: OnAppended) -> None:
        self.waiting.append((records, on_done))

    def finish_one(self, now_ms: int, error: ErrorCode = ErrorCode.NONE) -> None:
        records, on_done = self.waiting.pop(0)
        if error is ErrorCode.NONE:
            self.durable += records
        on_done(error, now_ms)
