"""Keeps the size of an internal log, and the part that has to be replayed, bounded by the size of its live records.

The leader takes a snapshot of the log (`log_snapshot`) when much was written since the last one, and once a day.
Then it moves the trimming cursor (`trimming_cursor`) to the snapshot, and Pulsar deletes the ledgers before it when
they are older than the topic's retention. The retention is a second guard, in case an administrator moves or deletes
the cursor. Replay begins at the snapshot, and does not depend on Pulsar's compaction. A log without a snapshot, or
whose cursor cannot be read, is replayed from its beginning, compacted; both ways give the same state.

Pulsar's own way, compaction and a retention, loses data when a broker forgets its newest compacted ledger
(apache/pulsar#11211, apache/pulsar#26631): the log itself has to hold all live records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from gateway.coordination.partition.internal_log import InternalLog, Record
from gateway.coordination.partition.log_reading import Replay, read_records
from gateway.coordination.partition.log_snapshot import LogSnapshot, SnapshotFailedError
from gateway.coordination.partition.trimming_cursor import TakenSnapshot, TrimmingCursor
from gateway.observability.metrics import Metrics
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import PulsarError
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Start

MAX_AGE_MS = 24 * 60 * 60 * 1000
"""Short enough that several snapshots are younger than the topic's retention."""
CHECK_S = 5.0
RETRY_FIRST_S = 60.0
RETRY_LONGEST_S = 3_600.0
"""A snapshot that keeps failing may copy all records each time."""
FIND_TIMEOUT_S = 5.0
"""A partition can be loaded without the admin API, too."""

log = structlog.get_logger()


class TrimmedDuringReadError(PulsarError):
    """The log was trimmed while it was read, for a snapshot of an earlier leader: the records read may have a gap."""


class LogTrimming:
    """The trimming of one partition of an internal topic."""

    def __init__(
        self,
        client: PulsarClient,
        cursor: TrimmingCursor,
        topic: str,
        mark: Record,
        now_ms: Callable[[], int],
        segment_bytes: int,
        turn: asyncio.Lock,
        metrics: Metrics,
    ) -> None:
        """`mark` is a record that changes nothing. Logs with the same `turn` take snapshots one after the other."""
        self._client = client
        self._cursor = cursor
        self._topic = topic
        self._mark = mark
        self._now_ms = now_ms
        self._segment_bytes = segment_bytes
        self._turn = turn
        self._metrics = metrics
        self._last: TakenSnapshot | None = None
        self._bytes_before = 0
        """Bytes after the last snapshot, without those that this leader has appended. After this leader's own snapshot:
        minus the bytes that it had appended before."""

    async def replay(self, end: Position, replay: Replay) -> None:
        """Replay the log from its last snapshot up to `end`, inclusive. Raises PulsarError and TimeoutError.

        While the admin API does not return the position of the last snapshot, the compacted log is used.
        """
        try:
            self._last = await self._find()
        except (PulsarError, TimeoutError) as error:
            log.warning("cannot find the last snapshot of an internal log", topic=self._topic, error=str(error))
            self._last = None
        self._bytes_before = await self._read(end, replay)

    async def _read_for_snapshot(self, end: Position, replay: Replay) -> None:
        """Only records after the last snapshot may be copied. If its position is not known, the new snapshot fails."""
        self._last = await self._find()
        await self._read(end, replay)

    async def _read(self, end: Position, replay: Replay) -> int:
        """Returns the number of bytes read."""
        start: Start = "earliest"
        if self._last is not None:
            start = self._last.position._replace(entry_id=self._last.position.entry_id + 1)
        size = await read_records(
            self._client, self._topic, start, end, replay, read_compacted=self._last is None
        )
        if self._last is not None and await self._find() != self._last:
            raise TrimmedDuringReadError(f"{self._topic} was trimmed while it was read")
        return size

    async def _find(self) -> TakenSnapshot | None:
        """Raises PulsarError and TimeoutError."""
        async with asyncio.timeout(FIND_TIMEOUT_S):
            return await self._cursor.find()

    async def run(self, internal_log: InternalLog) -> None:
        """Take snapshots of the log until it is lost. The log has been replayed."""
        retry_s = RETRY_FIRST_S
        while not internal_log.is_lost:
            pause_s = CHECK_S
            if self._is_due(self._bytes_before + internal_log.appended_bytes):
                try:
                    async with self._turn:
                        await self._take(internal_log)
                    retry_s = RETRY_FIRST_S
                except (SnapshotFailedError, PulsarError, TimeoutError) as error:
                    log.warning("internal log not trimmed", topic=self._topic, error=str(error) or repr(error))
                    pause_s, retry_s = retry_s, min(2 * retry_s, RETRY_LONGEST_S)
            await asyncio.sleep(pause_s)

    def _is_due(self, behind_bytes: int) -> bool:
        """`behind_bytes` are all bytes after the mark of the last snapshot, including the snapshot itself."""
        if self._last is None:
            return True
        is_old = self._now_ms() - self._last.taken_ms >= MAX_AGE_MS
        return is_old or behind_bytes - self._last.size_bytes > max(self._segment_bytes, self._last.size_bytes)

    async def _take(self, internal_log: InternalLog) -> None:
        snapshot = LogSnapshot(internal_log)
        position = await snapshot.take(self._mark, self._read_for_snapshot)
        taken = TakenSnapshot(position, self._now_ms(), snapshot.size_bytes)
        await self._cursor.move(taken)
        self._last, self._bytes_before = taken, -snapshot.appended_bytes
        self._metrics.log_snapshots.inc()
        log.info("wrote snapshot of internal log", topic=self._topic, position=position, size_bytes=taken.size_bytes)
