"""What an internal log keeps, and what has to be replayed of it, stays bounded by what counts of it.

The leader takes a snapshot of the log (`log_snapshot`) when much was written since the last one, and once a day. Then
the trimming cursor (`trimming_cursor`) moves there, and Pulsar deletes the ledgers before it, when they are as old as
the topic's retention says: that is the second guard, should somebody move or delete the cursor. Replay begins at the
snapshot, and is independent of Pulsar's compaction. A log without a snapshot, or whose cursor cannot be looked up, is
replayed from its beginning, compacted; both tell the same.

Pulsar's own way, compaction and a retention, loses data when a broker forgets its newest compacted ledger
(apache/pulsar#11211, apache/pulsar#26631): the log itself has to hold all.
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
"""Several snapshots are younger than the topic's retention."""
CHECK_S = 5.0
RETRY_FIRST_S = 60.0
RETRY_LONGEST_S = 3_600.0
"""What fails for long may have been copied each time."""
FIND_TIMEOUT_S = 5.0
"""A partition is taken without the admin API too."""

log = structlog.get_logger()


class TrimmedMeanwhileError(PulsarError):
    """The log was trimmed while it was read, for a snapshot of an earlier leader: what was read may have a gap."""


class LogTrimming:
    """Of one partition of an internal topic."""

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
        """`mark` is a record that changes nothing. Logs of one `turn` take their snapshots in turns."""
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
        """Behind the last snapshot, before the log of this leader was given anything; negative after its first one."""

    async def replay(self, end: Position, replay: Replay) -> None:
        """What counts of the log up to an entry, and with it. Raises PulsarError and TimeoutError.

        While the admin API does not say where the last snapshot is, the compacted log has to do.
        """
        try:
            self._last = await self._find()
        except (PulsarError, TimeoutError) as error:
            log.warning("last snapshot of an internal log is not known", topic=self._topic, error=str(error))
            self._last = None
        self._bytes_before = await self._read(end, replay)

    async def _read_for_snapshot(self, end: Position, replay: Replay) -> None:
        """What is copied comes from behind the last snapshot. Without knowing it, nothing may be copied."""
        self._last = await self._find()
        await self._read(end, replay)

    async def _read(self, end: Position, replay: Replay) -> int:
        """Returns how many bytes that were."""
        start: Start = "earliest"
        if self._last is not None:
            start = self._last.position._replace(entry_id=self._last.position.entry_id + 1)
        size = await read_records(
            self._client, self._topic, start, end, replay, read_compacted=self._last is None
        )
        if self._last is not None and await self._find() != self._last:
            raise TrimmedMeanwhileError(f"{self._topic} was trimmed while it was read")
        return size

    async def _find(self) -> TakenSnapshot | None:
        """Raises PulsarError and TimeoutError."""
        async with asyncio.timeout(FIND_TIMEOUT_S):
            return await self._cursor.find()

    async def run(self, internal_log: InternalLog) -> None:
        """Take snapshots of the log, which is replayed, until it is lost."""
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
        """By all that is behind the last snapshot, itself included."""
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
        log.info("internal log may be trimmed", topic=self._topic, position=position, snapshot_bytes=taken.size_bytes)
