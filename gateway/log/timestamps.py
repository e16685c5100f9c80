"""Offsets by timestamp: the first record, in offset order, that is not older than the timestamp; and the latest record.

Records have their producers' times; Pulsar knows when entries were published. A record is published after it was
created, except for the difference of the clocks. So in a large log the search starts at the entry that was published
CLOCK_SKEW_MS before the requested time, and batches are skipped by their headers from there on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
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
from gateway.log.reading.positions import scan_start
from gateway.observability.logs import SparseLog
from gateway.pulsar.position import Position
from gateway.pulsar.reader import Start
from protocol.kafka.batch import BatchHeader, CorruptBatch, InvalidBatch, iter_headers
from protocol.kafka.records import iter_records

T = TypeVar("T")
logger = SparseLog(structlog.get_logger())

CLOCK_SKEW_MS = 60_000
"""How far a producer's clock may be ahead of the clock that stamped the entry."""


class FoundOffset(NamedTuple):
    offset: int
    timestamp: int


_NONE = FoundOffset(-1, -1)


async def find_by_timestamp(log: PartitionLog, timestamp: int) -> FoundOffset | None:
    """The first record with that timestamp or a later one. Raises PulsarError, TimeoutError."""
    await log.start.refresh(at_most_every_s=START_AGE_S)  # otherwise the search waits for deleted entries
    if log.end_offset <= log.start.offset:
        return None
    start = await _search_start(log, timestamp)
    async with aclosing(_entries(log, start)) as entries:
        async for entry in entries:
            for position, header in iter_headers(entry.data):
                if header.max_timestamp >= timestamp and header.last_offset >= log.start.offset:
                    found = await _first_in_batch(log, entry.data, position, header, timestamp)
                    if found is not None:
                        return found
    return None


async def find_max_timestamp(log: PartitionLog) -> FoundOffset | None:
    """The first record that has the largest timestamp. In a large log only the last ``timestamp_scan_bytes`` are read.

    Raises PulsarError, TimeoutError.
    """
    await log.start.refresh(at_most_every_s=START_AGE_S)
    if log.end_offset <= log.start.offset:
        return None
    stats = await log.resources.admin.topics.internal_stats(log.source.pulsar_topic)
    best: tuple[int, BatchHeader, bytes] | None = None
    async with aclosing(_entries(log, scan_start(stats.ledgers, log.resources.limits.timestamp_scan_bytes))) as entries:
        async for entry in entries:
            for position, header in iter_headers(entry.data):
                if not header.record_count or header.last_offset < log.start.offset:
                    continue
                latest = await _latest_in_batch(log, entry.data, position, header)
                if best is None or latest > best[0]:
                    best = latest, header, bytes(entry.data[position : position + header.size_bytes])
    if best is None:
        return None
    latest, header, data = best
    if latest < 0:
        return FoundOffset(log.start.offset, -1)
    return await _first_in_batch(log, data, 0, header, latest)


async def _latest_in_batch(log: PartitionLog, data: Buffer, position: int, header: BatchHeader) -> int:
    """The largest timestamp of the batch. The header has it, unless records of the batch were deleted."""
    if header.base_offset >= log.start.offset or header.log_append_time:
        return header.max_timestamp
    left = log.start.offset - header.base_offset

    def latest() -> int:
        records = iter_records(data, position, header, log.resources.limits.max_decompressed_bytes)
        return max((record.timestamp for record in records if record.offset_delta >= left), default=-1)

    found = await _look_inside(log, header, latest)
    return header.max_timestamp if found is None else found


async def _first_in_batch(
    log: PartitionLog, data: Buffer, position: int, header: BatchHeader, timestamp: int
) -> FoundOffset | None:
    if header.log_append_time:
        return FoundOffset(max(header.base_offset, log.start.offset), header.max_timestamp)
    log_start = log.start.offset

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


async def _search_start(log: PartitionLog, timestamp: int) -> Start:
    stats = await log.resources.admin.topics.internal_stats(log.source.pulsar_topic)
    if sum(ledger.size_bytes for ledger in stats.ledgers) <= log.resources.limits.timestamp_scan_bytes:
        return "earliest"
    position = await log.resources.admin.topics.position_at(log.source.pulsar_topic, max(0, timestamp - CLOCK_SKEW_MS))
    return position if position <= log.source.last_position else log.source.last_position


async def _entries(log: PartitionLog, start: Start) -> AsyncGenerator[LogEntry, None]:
    last = log.source.last_position
    if log.source.compacted:  # compaction may have removed its last entries
        last = min(last, await log.resources.client.last_position(log.source.pulsar_topic, read_compacted=True))
    if last.entry_id < 0 or (isinstance(start, Position) and start > last):
        return
    max_bytes = log.resources.limits.max_decompressed_bytes
    convert = partial(from_pulsar, max_bytes=max_bytes, chunked=ChunkedMessages(max_bytes))
    client, admin, source = log.resources.client, log.resources.admin, log.source
    found = read_entries(
        client, source.pulsar_topic, start, last, read_compacted=source.compacted, admin=admin
    )
    async with aclosing(found) as entries:
        async for entry in entries:
            read = await converted(log.resources.decoding, convert, entry, log.source.pulsar_topic)
            if read is not None:
                yield read
