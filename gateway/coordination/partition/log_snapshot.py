"""A snapshot of an internal log: the last record of each key is appended again, after a mark (Kafka's log cleaner).

Replaying the log from the mark gives the same state as replaying the whole log, so the entries before the mark may
be deleted. Records are copied unchanged, without being interpreted. Tombstones are not copied. The log stays
writable during the copy: a record that is appended after the mark is newer than any copy, so its key is no longer
copied. While the outcome of such an append is unknown, its key waits.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence

from gateway.coordination.partition.internal_log import InternalLog, OnAppended, Record
from gateway.coordination.partition.log_reading import Replay
from gateway.pulsar.position import Position
from protocol.kafka.errors import ErrorCode

SLICE_RECORDS = 1_000
SLICE_BYTES = 256 * 1024
"""How much is copied per slice: work of a few milliseconds, for which commits have to wait."""

ReadTo = Callable[[Position, Replay], Awaitable[object]]


class SnapshotFailedError(Exception):
    """The log did not accept the snapshot. The part that it did accept does no harm."""


class LogSnapshot:
    """Call `take` once, while no other snapshot of the log is taken."""

    def __init__(self, log: InternalLog) -> None:
        self._log = log
        self._live: dict[bytes, bytes] = {}
        self._written: set[bytes] = set()
        self._unanswered: Counter[bytes] = Counter()
        self.appended_bytes = 0
        """The bytes that were appended to the log before the mark."""
        self.size_bytes = 0
        """The size of the keys and values that were copied."""

    async def take(self, mark: Record, read_to: ReadTo) -> Position:
        """Returns the position of the mark when everything after it is durable.

        `mark` is a record that changes nothing. `read_to` replays the log, from its last snapshot, up to a position,
        inclusive. Raises SnapshotFailedError, and what `read_to` raises.
        """
        assert self._log.append_filter is None
        self._log.append_filter = self._follow
        try:
            self.appended_bytes = self._log.appended_bytes
            position = await self._append([mark], alone=True)
            await read_to(position, self._replay)
            await self._copy()
        finally:
            self._log.append_filter = None
        return position

    def _replay(self, key: bytes, value: bytes | None) -> None:
        self._live.pop(key, None)  # copies are in the order of the records
        if value is not None and key not in self._written:
            self._live[key] = value

    def _follow(self, records: Sequence[Record], on_done: OnAppended) -> OnAppended:
        keys = [key for key, _ in records]
        self._unanswered.update(keys)

        def on_answered(error: ErrorCode, now_ms: int) -> None:
            for key in keys:
                self._unanswered[key] -= 1
                if not self._unanswered[key]:
                    del self._unanswered[key]
            if error is ErrorCode.NONE:
                self._written.update(keys)
            on_done(error, now_ms)

        return on_answered

    async def _copy(self) -> None:
        """A waiting key is checked again in the next turn, when all that was appended before is answered."""
        waiting = deque(self._live)
        while waiting:
            await self._append(self._next_slice(waiting))

    def _next_slice(self, waiting: deque[bytes]) -> list[Record]:
        records: list[Record] = []
        size = 0
        for _ in range(min(len(waiting), SLICE_RECORDS)):
            key = waiting.popleft()
            if key in self._unanswered:
                waiting.append(key)
                continue
            value = self._live.pop(key)
            if key not in self._written:
                records.append((key, value))
                size += len(key) + len(value)
                if size >= SLICE_BYTES:
                    break
        self.size_bytes += size
        return records

    async def _append(self, records: Sequence[Record], *, alone: bool = False) -> Position:
        done: asyncio.Future[Position] = asyncio.get_running_loop().create_future()

        def on_done(error: ErrorCode, now_ms: int) -> None:
            if done.done():  # cancelled
                return
            if error is ErrorCode.NONE:
                done.set_result(self._log.durable_up_to)
            else:
                done.set_exception(SnapshotFailedError(f"the log answers {error.name}"))

        self._log.append(records, on_done, alone=alone)
        return await done
