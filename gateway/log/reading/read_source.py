"""A log, as those see it who read from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.log.bounds.log_end import LogEnd
from gateway.log.reading.log_start import LogStart
from gateway.log.reading.waiters import Waiters
from gateway.pulsar.position import Position


class ReadSource:
    """What there is of a log to read, and who waits for it."""

    def __init__(
        self,
        pulsar_topic: str,
        start: LogStart,
        end: LogEnd[Any],
        waiters: Waiters,
        is_compacted: Callable[[], bool],
    ) -> None:
        self.pulsar_topic = pulsar_topic
        self.start = start
        self.waiters = waiters
        self.closed = False
        """To be replaced by a new one."""
        self._end = end
        self._is_compacted = is_compacted

    @property
    def end_offset(self) -> int:
        """The high watermark: the offset behind the last batch known."""
        return self._end.next_offset

    @property
    def last_position(self) -> Position:
        return self._end.last

    @property
    def compacted(self) -> bool:
        """Older data is read as Pulsar's compaction left it. Clients may change it at any time."""
        return self._is_compacted()
