"""What a log has for clients: its tail in memory, and older data as readers bring it."""

from __future__ import annotations

import time

from gateway.log.entries.log_entry import Buffer
from gateway.log.reading.cache import LogTail
from gateway.log.reading.positions import SparseIndex
from gateway.log.reading.read_source import ReadSource
from gateway.log.reading.readers import CatchUpReaders
from gateway.observability.metrics import Metrics
from gateway.pulsar.position import Position


class LogReader:
    """Of one log. Nothing here waits; ``ReadSource.waiters`` are woken when more can be read."""

    def __init__(self, source: ReadSource, tail: LogTail, readers: CatchUpReaders, metrics: Metrics) -> None:
        self.last_used = time.monotonic()
        self._source = source
        self._tail = tail
        self._readers = readers
        self._metrics = metrics

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True) -> tuple[list[Buffer], int] | None:
        """(buffers, bytes) from ``offset`` on, empty at the end; None if they are neither in memory nor read ahead.

        Raises KafkaError OFFSET_OUT_OF_RANGE below the start; the caller checks the end.
        """
        self.last_used = time.monotonic()
        if offset >= self._source.end_offset:
            return [], 0
        found = self._tail.read(offset, max_bytes, at_least_one=at_least_one)
        if found is not None:
            self._metrics.cache_hits.inc()
        else:
            self._metrics.cache_misses.inc()
            found = self._readers.read(self._source, offset, max_bytes, at_least_one=at_least_one)
        return None if found is None else (found.chunks, found.size_bytes)

    def position_before(self, offset: int) -> Position | None:
        """Where the last entry lies that ends at or before ``offset``; None if that is not in memory."""
        if offset == self._source.end_offset and self._source.last_position.entry_id >= 0:
            return self._source.last_position
        return self._tail.position_before(offset)

    @property
    def known_positions(self) -> SparseIndex:
        """Of older data that was read."""
        return self._readers.index(self._source)

    def available_bytes(self, offset: int) -> int:
        """Bytes that a read at ``offset`` would find in memory."""
        return self._tail.available_bytes(offset)

    def is_read_ahead(self, offset: int) -> bool:
        """Older data from ``offset`` on has come from Pulsar."""
        return self._readers.holds(self._source, offset)

    def prefetch(self, offset: int) -> None:
        """Start to read what ``read`` did not find; waiters hear of it."""
        self._readers.start(self._source, offset)
