"""Offsets by timestamp: the first record, in offset order, that is not older than the timestamp; and the latest record.

Records have their producers' times; Pulsar knows when entries were published. A record is published after it was
created, except for the difference of the clocks. So in a large log the search starts at the entry that was published
CLOCK_SKEW_MS before the requested time, and batches are skipped by their headers from there on.

Searches take turns, a part of a log each: clients may search thousands of logs at the same time.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import NamedTuple, TypeVar

import structlog

from gateway.log.entries.chunked_messages import ChunkedMessages
from gateway.log.entries.decoding import HEAVY_MESSAGES, converted
from gateway.log.entries.entry_stream import read_entries
from gateway.log.entries.log_entry import Buffer, LogEntry, from_pulsar
from gateway.log.partition_log import PartitionLog
from gateway.log.reading.log_start import START_AGE_S
from gateway.log.reading.passed_times import Passed
from gateway.log.reading.positions import scan_start
from gateway.log.resources import SCANNED_AHEAD_BYTES
from gateway.observability.logs import SparseLog
from gateway.pulsar.admin.topics import Ledger
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Start
from protocol.kafka.batch import NO_TIMESTAMP, BatchHeader, CorruptBatch, InvalidBatch, iter_headers
from protocol.kafka.offset_span import is_gap
from protocol.kafka.records import iter_records

T = TypeVar("T")
logger = SparseLog(structlog.get_logger())

CLOCK_SKEW_MS = 60_000
"""How far a producer's clock may be ahead of the clock that stamped the entry."""


PART_BYTES = 16 * 1024 * 1024
"""The size of the part of a log that a search reads in one turn."""
HOLD_S = 2.0
"""A search gives its turn to the next one after this time: it waits for Pulsar."""


class FoundOffset(NamedTuple):
    offset: int
    timestamp: int


_NONE = FoundOffset(-1, -1)


async def find_by_timestamp(log: PartitionLog, timestamp: int) -> FoundOffset | None:
    """The first record with that timestamp or a later one. Raises PulsarError, TimeoutError."""
    await log.start.refresh(at_most_every_s=START_AGE_S)  # otherwise the search waits for deleted entries
    if log.end_offset <= log.start.offset:
        return None
    search = _Search(log, timestamp, await _search_start(log, timestamp), await _last(log))
    found = None
    while found is None and not search.is_over:
        async with log.resources.scan_turns.turn(search, urgent=False, hold_s=HOLD_S):
            found = await search.read_part()
    return found


class _Search:
    """The search for the first record of a timestamp, from a position up to the end that the log has now."""

    def __init__(self, log: PartitionLog, timestamp: int, start: _SearchStart, last: Position) -> None:
        self.is_over = False
        self._log = log
        self._timestamp = timestamp
        self._position, self._latest = start
        self._last = last

    async def read_part(self) -> FoundOffset | None:
        """The record, if it is in the next part of the log."""
        chunked = _chunks(self._log)
        size_bytes, position = 0, self._last
        async with aclosing(_entries(self._log, self._position, self._last, chunked)) as entries:
            async for entry in entries:
                found = await self._find(entry)
                if found is not None:
                    return found
                size_bytes, position = size_bytes + entry.size_bytes, entry.position
                if size_bytes >= (2 * PART_BYTES if chunked.size_bytes else PART_BYTES):
                    break
            else:
                self.is_over, position = True, self._last
        self._position = position._replace(entry_id=position.entry_id + 1)
        if self._latest is not None and not chunked.size_bytes:
            self._log.passed_times.learn(Passed(self._position, self._latest))
        return None

    async def _find(self, entry: LogEntry) -> FoundOffset | None:
        log, timestamp = self._log, self._timestamp
        for position, header in iter_headers(entry.data):
            if header.max_timestamp >= timestamp and header.last_offset >= log.start.offset:
                found = await _first_in_batch(log, entry.data, position, header, timestamp, log.start.offset)
                if found is not None:
                    return found
            if self._latest is not None:
                self._latest = max(self._latest, header.max_timestamp)
        return None


async def holds_before(log: PartitionLog, timestamp: int) -> bool:
    """Whether anything was stored at that time or before, whatever timestamps the records have. Raises PulsarError."""
    topics, name = log.resources.admin.topics, log.source.pulsar_topic
    first = _first_position((await topics.internal_stats(name)).ledgers)
    return first is not None and await topics.position_at(name, timestamp + 1) > first


async def find_max_timestamp(log: PartitionLog) -> FoundOffset | None:
    """The first record that has the largest timestamp. In a large log only the last ``timestamp_scan_bytes`` are read.

    Raises PulsarError, TimeoutError.
    """
    await log.start.refresh(at_most_every_s=START_AGE_S)
    if log.end_offset <= log.start.offset:
        return None
    async with log.resources.scan_turns.turn(object(), urgent=False, hold_s=HOLD_S):
        return await _find_max_timestamp(log)


async def _find_max_timestamp(log: PartitionLog) -> FoundOffset | None:
    stats = await log.resources.admin.topics.internal_stats(log.source.pulsar_topic)
    start, chunked = scan_start(stats.ledgers, log.resources.limits.timestamp_scan_bytes), _chunks(log)
    log_start = log.start.offset  # clients may delete the best record during the search: there was one
    best: tuple[int, BatchHeader, bytes] | None = None
    async with aclosing(_entries(log, start, await _last(log), chunked)) as entries:
        async for entry in entries:
            for position, header in iter_headers(entry.data):
                if not header.record_count or is_gap(header) or header.last_offset < log_start:
                    continue
                latest = await _latest_in_batch(log, entry.data, position, header, log_start)
                if best is None or latest > best[0]:
                    best = latest, header, bytes(entry.data[position : position + header.size_bytes])
    if best is None:
        return None
    latest, header, data = best
    if latest < 0:
        return FoundOffset(log_start, -1)
    return await _first_in_batch(log, data, 0, header, latest, log_start)


async def _latest_in_batch(
    log: PartitionLog, data: Buffer, position: int, header: BatchHeader, log_start: int
) -> int:
    """The largest timestamp of the batch. The header has it, unless records of the batch were deleted."""
    if header.base_offset >= log_start or header.log_append_time:
        return header.max_timestamp
    left = log_start - header.base_offset

    def latest() -> int:
        records = iter_records(data, position, header, log.resources.limits.max_decompressed_bytes)
        return max((record.timestamp for record in records if record.offset_delta >= left), default=-1)

    found = await _look_inside(log, header, latest)
    return header.max_timestamp if found is None else found


async def _first_in_batch(
    log: PartitionLog, data: Buffer, position: int, header: BatchHeader, timestamp: int, log_start: int
) -> FoundOffset | None:
    if header.log_append_time:
        return FoundOffset(max(header.base_offset, log_start), header.max_timestamp)

    def first() -> FoundOffset:
        for record in iter_records(data, position, header, log.resources.limits.max_decompressed_bytes):
            offset = header.base_offset + record.offset_delta
            if record.timestamp >= timestamp and record.timestamp >= 0 and offset >= log_start:
                return FoundOffset(offset, record.timestamp)
        return _NONE

    found = await _look_inside(log, header, first)
    if found is None:
        return FoundOffset(max(header.base_offset, log_start), header.max_timestamp)
    return None if found is _NONE else found


async def _look_inside(log: PartitionLog, header: BatchHeader, work: Callable[[], T]) -> T | None:
    """Runs in a thread if it may take long. None if the records cannot be read: the batch's header is used then."""
    try:
        if header.compression or header.record_count > HEAVY_MESSAGES:
            return await log.resources.decoding.run(work, log.source.pulsar_topic)
        return work()
    except (CorruptBatch, InvalidBatch) as error:
        logger.warning("unreadable records", topic=log.source.pulsar_topic, offset=header.base_offset, error=str(error))
        return None


class _SearchStart(NamedTuple):
    position: Start
    latest: int | None
    """The latest timestamp of the records before; None if it is unknown."""


async def _search_start(log: PartitionLog, timestamp: int) -> _SearchStart:
    start = await _start_by_publish_time(log, timestamp)
    passed = log.passed_times.before(timestamp)
    if passed is not None and (not isinstance(start, Position) or passed.position >= start):
        return _SearchStart(*passed)
    return _SearchStart(start, None if isinstance(start, Position) else NO_TIMESTAMP)


async def _start_by_publish_time(log: PartitionLog, timestamp: int) -> Start:
    topics, name = log.resources.admin.topics, log.source.pulsar_topic
    ledgers = (await topics.internal_stats(name)).ledgers
    if sum(ledger.size_bytes for ledger in ledgers) <= log.resources.limits.timestamp_scan_bytes:
        return "earliest"
    position = await topics.position_at(name, max(0, timestamp - CLOCK_SKEW_MS))
    first = _first_position(ledgers)
    if first is not None and position <= first:
        return "earliest"
    return min(position, log.source.last_position)


def _first_position(ledgers: Sequence[Ledger]) -> Position | None:
    return next((Position(ledger.ledger_id, 0) for ledger in ledgers if ledger.entries > 0), None)


def _chunks(log: PartitionLog) -> ChunkedMessages:
    return ChunkedMessages(log.resources.limits.max_decompressed_bytes)


async def _last(log: PartitionLog) -> Position:
    """The last entry that readers get."""
    last = log.source.last_position
    if log.source.compacted:  # compaction may have removed its last entries
        left = await log.resources.client.last_position(log.source.pulsar_topic, read_compacted=True)
        last = left if last.entry_id < 0 else min(last, left)  # all entries may have expired but the compacted ones
    return last


async def _entries(
    log: PartitionLog, start: Start, last: Position, chunked: ChunkedMessages
) -> AsyncGenerator[LogEntry, None]:
    if last.entry_id < 0 or (isinstance(start, Position) and start > last):
        return
    max_bytes = log.resources.limits.max_decompressed_bytes
    convert = partial(from_pulsar, max_bytes=max_bytes, chunked=chunked)
    client, admin, source = log.resources.client, log.resources.admin, log.source
    found = read_entries(
        client, source.pulsar_topic, start, last, read_compacted=source.compacted, admin=admin,
        queued_bytes=SCANNED_AHEAD_BYTES,
    )  # fmt: skip
    async with aclosing(found) as entries:
        async for entry in entries:
            read = await converted(log.resources.decoding, convert, entry, log.source.pulsar_topic)
            if read is not None:
                yield read
