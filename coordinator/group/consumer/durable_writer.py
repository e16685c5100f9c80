"""Appends of one group whose state is ahead of its log, such as KIP-848 groups.

The state changes at once; the answer is sent when the records are durable. One append is in flight at a time, and the
next one has all that was written in the meantime. So an append that fails is never followed by a newer one that
succeeds: its records, which the state cannot take back, are in the next append, before all that is newer. Otherwise the
next coordinator might believe a member that was removed, and another one that got its partitions.
"""

from collections.abc import Callable, Sequence

from coordinator.log import Log, Record
from protocol.kafka.errors import ErrorCode

OnDone = Callable[[ErrorCode], None]


class DurableWriter:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._in_flight: Sequence[Record] = ()
        self._refused: dict[bytes, Record] = {}
        """Records that the log refused, by key; the one that was written last is the last one."""
        self._queue: list[Record] = []
        self._waiting: list[OnDone] = []
        """To be called when all that was written until now is durable, or its append has failed."""

    @property
    def keys(self) -> set[bytes]:
        """Keys of records that the log does not have yet, or of which this is not known."""
        return {record.key for record in (*self._in_flight, *self._queue)} | self._refused.keys()

    def write_with_next(self, records: Sequence[Record]) -> None:
        self._queue += records

    def write(self, records: Sequence[Record], on_done: OnDone) -> None:
        """`on_done` is called when these records and all earlier ones are durable, or their append has failed."""
        self._queue += records
        self._waiting.append(on_done)
        if not self._in_flight:
            self._append()

    def close(self) -> None:
        """The group is not served any more. What was written is appended now, before the group's tombstones.

        These need the keys of all records whose outcome is unknown, so what is in flight still counts."""
        if self._waiting:
            sent = self._in_flight
            self._append()
            self._in_flight = (*sent, *self._in_flight)

    def _append(self) -> None:
        for record in self._queue:
            self._refused.pop(record.key, None)
        records, waiting = [*self._refused.values(), *self._queue], self._waiting
        self._refused, self._queue, self._waiting = {}, [], []
        if records:
            self._in_flight = records
            self._log.append(records, lambda error, now_ms: self._appended(records, waiting, error))
        else:
            _answer(waiting, ErrorCode.NONE)

    def _appended(self, records: Sequence[Record], waiting: Sequence[OnDone], error: ErrorCode) -> None:
        if self._in_flight is records:  # otherwise the writer was closed
            self._in_flight = ()
        if error is not ErrorCode.NONE:
            for record in records:
                self._refused.pop(record.key, None)
                self._refused[record.key] = record
        _answer(waiting, error)
        if self._waiting and not self._in_flight:
            self._append()


def _answer(waiting: Sequence[OnDone], error: ErrorCode) -> None:
    for on_done in waiting:
        on_done(error)
