"""The readers with which logs were opened, kept for a moment: most consumers of a new log begin at its start.

Without them, such a consumer would open the same reader again, and read the first entry a second time.
"""

from __future__ import annotations

import time
from collections import OrderedDict

from gateway.background import run_once
from gateway.log.entries.start_reader import StartReader
from gateway.log.reading.read_source import ReadSource

MAX_KEPT = 256
MAX_KEPT_BYTES = 4 * 1024 * 1024
"""Of their first entries."""
KEPT_S = 5.0


class StartReaders:
    """Each is taken once, or closed. The oldest are closed first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[ReadSource, tuple[StartReader, float]] = OrderedDict()
        self._kept_bytes = 0

    def keep(self, log: ReadSource, reader: StartReader) -> None:
        self._kept[log] = reader, time.monotonic()
        self._kept_bytes += reader.size_bytes
        while len(self._kept) > MAX_KEPT or self._kept_bytes > MAX_KEPT_BYTES:
            self.close(next(iter(self._kept)))

    def take(self, log: ReadSource, offset: int) -> StartReader | None:
        """A reader that goes on at this offset, now the caller's."""
        kept = self._kept.get(log)
        if kept is None or kept[0].offset != offset or log.compacted or not kept[0].can_go_on:
            return None
        return self._remove(log)

    def close(self, log: ReadSource) -> None:
        if log in self._kept:
            run_once("close reader", self._remove(log).reader.close())

    def close_old(self) -> None:
        deadline = time.monotonic() - KEPT_S
        for log in [log for log, (_, since) in self._kept.items() if since < deadline]:
            self.close(log)

    def _remove(self, log: ReadSource) -> StartReader:
        reader, _ = self._kept.pop(log)
        self._kept_bytes -= reader.size_bytes
        return reader
