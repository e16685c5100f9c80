"""Appends of one group whose state is ahead of its log, such as KIP-848 groups.

The state changes at once; the answer is sent when the records are durable. One append is in flight at a time, and the
next one has all that was written in the meantime. So an append that fails is never followed by a newer one that
succeeds: its records, which the state cannot take back, are in the next append, before all that is newer. Otherwise the
next coordinator might believe a member that was removed, and another one that got its partitions.

What was written in the meantime may be more than the log takes at once: then it is appended in parts.
"""

from collections.abc import Callable, Sequence

from coordinator.log import Log, Record
from protocol.kafka.errors import ErrorCode

OnDone = Callable[[ErrorCode], None]

MAX_APPEND_BYTES = 4 * 1024 * 1024
"""Of one append, unless a single record has more."""

MAX_APPEND_RECORDS = 2_000
"""Of one append: its encoding is one step of the event loop."""


class DurableWriter:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._in_flight: Sequence[Record] = ()
        self._rest: Sequence[Record] = ()
        """What is appended after the records in flight; both have the same answer."""
        self._refused: dict[bytes, Record] = {}
        """Records that the log refused, by key; the one that was written last is the last one."""
        self._queue: list[Record] = []
        self._waiting: list[OnDone] = []
        """To be called when all that was written until now is durable, or its append has failed."""
        self._is_closed = False

    @property
    def keys(self) -> set[bytes]:
        """Keys of records that the log does not have yet, or of which this is not known."""
        return {record.key for record in (*self._in_flight, *self._rest, *self._queue)} | self._refused.keys()

    @property
    def max_record_bytes(self) -> int:
        """What is larger cannot be written."""
        return self._log.max_record_bytes

    def write_with_next(self, records: Sequence[Record]) -> None:
        self._queue += records

    def write(self, records: Sequence[Record], on_done: OnDone) -> None:
        """`on_done` is called when these records and all earlier ones are durable, or their append has failed."""
        if self._is_closed:  # another group has this id now, or none: the client has to ask again
            on_done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        self._queue += records
        self._waiting.append(on_done)
        if not self._in_flight:
            self._append()

    def close(self) -> None:
        """The group is not served any more. What was written is appended now, before the group's tombstones.

        These need the keys of all records whose outcome is unknown, so what is in flight still counts."""
        self._is_closed = True
        if self._waiting or self._rest:
            waiting, self._waiting = self._waiting, []
            records = [*self._rest, *self._unwritten()]
            self._in_flight, self._rest = (*self._in_flight, *records), ()
            self._log.append(records, lambda error, now_ms: _answer(waiting, error))

    def _append(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._rest = self._unwritten()
        if self._rest:
            self._append_part(waiting)
        else:
            _answer(waiting, ErrorCode.NONE)

    def _unwritten(self) -> list[Record]:
        """What no append has had, or was refused. A record that the log cannot hold would be refused for ever, and
        with it all that the group needs: its key has no value then, and the next coordinator knows nothing of it."""
        for record in self._queue:
            self._refused.pop(record.key, None)
        records, limit = [*self._refused.values(), *self._queue], self._log.max_record_bytes
        self._refused, self._queue = {}, []
        return [record if record.size_bytes <= limit else Record(record.key, None) for record in records]

    def _append_part(self, waiting: Sequence[OnDone]) -> None:
        count, size, most = 1, self._rest[0].size_bytes, min(len(self._rest), MAX_APPEND_RECORDS)
        while count < most and (size := size + self._rest[count].size_bytes) <= MAX_APPEND_BYTES:
            count += 1
        self._in_flight, self._rest = self._rest[:count], self._rest[count:]
        self._log.append(self._in_flight, lambda error, now_ms: self._appended(waiting, error))

    def _appended(self, waiting: Sequence[OnDone], error: ErrorCode) -> None:
        if self._is_closed:
            _answer(waiting, error)
            return
        done, self._in_flight = self._in_flight, ()
        if error is ErrorCode.NONE and self._rest:
            self._append_part(waiting)
            return
        if error is not ErrorCode.NONE:
            for record in (*done, *self._rest):
                self._refused.pop(record.key, None)
                self._refused[record.key] = record
        self._rest = ()
        _answer(waiting, error)
        if self._waiting and not self._in_flight:
            self._append()


def _answer(waiting: Sequence[OnDone], error: ErrorCode) -> None:
    for on_done in waiting:
        on_done(error)
