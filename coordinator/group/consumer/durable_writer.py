"""Appends of one group whose state is ahead of its log, such as KIP-848 groups.

The state changes at once; the answer is sent when the records are durable. A failed append does not revert the state:
its records are written again with the group's next append, before anything newer is acknowledged.
"""

from collections.abc import Callable, Sequence

from coordinator.log import Log, Record
from protocol.kafka.errors import ErrorCode


class DurableWriter:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._appends = 0
        self._last_append_of: dict[bytes, int] = {}  # keys of records in flight
        self._unwritten: dict[bytes, Record] = {}
        self._in_flight: dict[int, list[Callable[[ErrorCode], None]]] = {}

    @property
    def unwritten(self) -> list[Record]:
        """Records that the log refused, and that nothing newer has replaced."""
        return list(self._unwritten.values())

    def write_with_next(self, records: Sequence[Record]) -> None:
        self._unwritten.update((record.key, record) for record in records)

    def write(self, records: Sequence[Record], on_done: Callable[[ErrorCode], None]) -> None:
        """`on_done` is called when these records and all earlier ones are durable, or their append has failed."""
        for record in records:
            self._unwritten.pop(record.key, None)
        outstanding = [*self._unwritten.values(), *records]
        if not outstanding:
            self._after_the_last(on_done)
            return
        self._unwritten.clear()
        self._append(outstanding, on_done)

    def _after_the_last(self, on_done: Callable[[ErrorCode], None]) -> None:
        if self._in_flight:
            self._in_flight[self._appends].append(on_done)
        else:
            on_done(ErrorCode.NONE)

    def _append(self, records: list[Record], on_done: Callable[[ErrorCode], None]) -> None:
        self._appends += 1
        number = self._appends
        self._in_flight[number] = [on_done]
        self._last_append_of.update((record.key, number) for record in records)

        def on_appended(error: ErrorCode, now_ms: int) -> None:
            waiting = self._in_flight.pop(number)
            for record in records:
                if self._last_append_of.get(record.key) == number:  # Otherwise a newer one is in flight.
                    del self._last_append_of[record.key]
                    if error is not ErrorCode.NONE:
                        self._unwritten[record.key] = record
            for waiter in waiting:
                waiter(error)

        self._log.append(records, on_appended)
