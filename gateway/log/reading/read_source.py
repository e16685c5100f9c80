"""A log from the point of view of its readers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.log.bounds.log_end import LogEnd
from gateway.log.reading.log_start import LogStart
from gateway.log.reading.waiters import Waiters
from gateway.pulsar.position import Position


class ReadSource:
    """The readable range of a log, and the fetches that wait for it."""

    def __init__(
        self,
        pulsar_topic: str,
        start: LogStart,
        end: LogEnd[Any],
        waiters: Waiters,
        compaction: Callable[[], int],
    ) -> None:
        self.pulsar_topic = pulsar_topic
        self.start = start
        self.waiters = waiters
        self.closed = False
        """Whether a new log will replace this one."""
        self._end = end
        self._compaction = compaction

    @property
    def end_offset(self) -> int:
        """The high watermark: the offset after the last known batch."""
        return self._end.next_offset

    @property
    def last_position(self) -> Position:
        return self._end.last

    @property
    def compacted(self) -> bool:
        """Whether older data is read as Pulsar's compaction left it. Clients may change this at any time."""
        return self._compaction() != 0
