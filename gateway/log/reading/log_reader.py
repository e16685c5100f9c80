"""The data of a log for clients: its tail in memory, and older data from readers."""

from __future__ import annotations

import time

from gateway.log.entries.log_entry import NO_LIMIT, Slice
from gateway.log.reading.cache import LogTail
from gateway.log.reading.positions import SparseIndex
from gateway.log.reading.read_source import ReadSource
from gateway.log.reading.readers import CatchUpReaders
from gateway.observability.metrics import Metrics
from gateway.pulsar.position import Position


class LogReader:
    """The data of one log. No method waits; ``ReadSource.waiters`` are woken when more can be read."""

    def __init__(self, source: ReadSource, tail: LogTail, readers: CatchUpReaders, metrics: Metrics) -> None:
        self.last_used = time.monotonic()
        self._source = source
        self._tail = tail
        self._readers = readers
        self._metrics = metrics

    def read(
        self, offset: int, max_bytes: int, *, at_least_one: bool = True, before: int = NO_LIMIT
    ) -> Slice | None:
        """The batches from ``offset`` to ``before``; None if they are neither in memory nor read ahead.

        Empty at the end. The caller checks start and end.
        """
        self.last_used = time.monotonic()
        if offset >= min(self._source.end_offset, before):
            return Slice([], 0, offset)
        found = self._tail.read(offset, max_bytes, at_least_one=at_least_one, before=before)
        if found is not None:
            self._metrics.cache_hits.inc()
            return found
        self._metrics.cache_misses.inc()
        return self._readers.read(self._source, offset, max_bytes, at_least_one=at_least_one, before=before)

    def position_before(self, offset: int) -> Position | None:
        """The position of the last entry that ends at or before ``offset``; None if that entry is not in memory."""
        if offset == self._source.end_offset and self._source.last_position.entry_id >= 0:
            return self._source.last_position
        return self._tail.position_before(offset)

    @property
    def known_positions(self) -> SparseIndex:
        """Positions of older entries that were read."""
        return self._readers.index(self._source)

    def available_bytes(self, offset: int, before: int = NO_LIMIT) -> int:
        """The bytes that a read at ``offset`` would find in memory."""
        return self._tail.available_bytes(offset, before)

    def is_read_ahead(self, offset: int) -> bool:
        """Whether older data from ``offset`` on has arrived from Pulsar."""
        return self._readers.holds(self._source, offset)

    def prefetch(self, offset: int) -> None:
        """Start to read data that ``read`` did not find; waiters are woken when it arrives."""
        self._readers.start(self._source, offset)
