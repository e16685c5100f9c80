"""A coordinator without groups: it counts, and its log has the counts."""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import Enum

from coordinator.log import Log, Record
from coordinator.state_machine import MalformedRecordError
from gateway.coordination.partition.kind import CoordinatorKind
from protocol.kafka.errors import ErrorCode

BARRIER = Record(b"barrier", None)
IDLE_MS = 10_000


class Answer(Enum):
    LOADING = "loading"
    COUNTED = "counted"
    GONE = "gone"
    IDLE = "idle"
    """No request for IDLE_MS."""


Reply = Callable[[Answer], None]


class CounterCoordinator:
    """`count` adds one to the number of a name; `wait` is answered after IDLE_MS without a count."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._status: Answer | None = Answer.LOADING
        self.counts: dict[str, int] = {}
        self._waiting: list[Reply] = []
        self._idle_ms: int | None = None
        self._to_free: list[str] = []

    # Requests of clients

    def count(self, name: str, now_ms: int, reply: Reply) -> None:
        if self._status is not None:
            reply(self._status)
            return
        value = self.counts.get(name, 0) + 1
        self._idle_ms = now_ms + IDLE_MS

        def on_done(error: ErrorCode, now_ms: int) -> None:
            if error is ErrorCode.NONE and self._status is None:
                self.counts[name] = value
            reply(Answer.GONE if error else Answer.COUNTED)

        self._log.append([Record(name.encode(), b"%d" % value)], on_done)

    def wait(self, now_ms: int, reply: Reply) -> None:
        if self._status is not None:
            reply(self._status)
        else:
            self._idle_ms = now_ms + IDLE_MS
            self._waiting.append(reply)

    def look(self, name: str) -> Answer | int:
        return self.counts.get(name, 0) if self._status is None else self._status

    # Calls of its partition

    def replay(self, key: bytes, value: bytes | None) -> None:
        if value is not None and not value.isdigit():
            raise MalformedRecordError("no number")
        if value is not None:
            self.counts[key.decode()] = int(value)

    def finish_loading(self, now_ms: int) -> Generator[None, None, int]:
        for _ in self.counts:
            yield
        self._status = None
        return len(self.counts)

    def resign(self, now_ms: int) -> None:
        self._status = Answer.GONE
        self._idle_ms = None
        self._to_free = [*self.counts]
        self._answer_waiting(Answer.GONE)

    def pause(self, now_ms: int) -> None:
        self._answer_waiting(Answer.GONE)

    def resume(self, now_ms: int) -> None:
        if self._idle_ms is not None:
            self._idle_ms = now_ms + IDLE_MS

    def next_deadline_ms(self) -> int | None:
        return self._idle_ms

    def tick(self, now_ms: int) -> None:
        if self._idle_ms is not None and now_ms >= self._idle_ms:
            self._idle_ms = None
            self._answer_waiting(Answer.IDLE)

    @property
    def has_work(self) -> bool:
        return bool(self._to_free)

    def work(self) -> None:
        del self.counts[self._to_free.pop()]

    def _answer_waiting(self, answer: Answer) -> None:
        waiting, self._waiting = self._waiting, []
        for reply in waiting:
            reply(answer)


COUNTERS = CoordinatorKind(CounterCoordinator, BARRIER)
