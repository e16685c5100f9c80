"""Standard error, where the log goes: a thread writes the lines, so a pipe that nobody reads blocks no event loop.

Lines wait in memory, `MAX_WAITING_LINES` at most. Further lines are dropped and counted. When the log is read again, a
line says how many were dropped.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

MAX_WAITING_LINES = 2_000
FLUSH_S = 3.0
"""At its end, the process waits for this time until its last lines are written."""
STANDARD_ERROR = 2


class LogOutput:
    """Has the methods that structlog calls for a finished line.

    No lock is held here: the garbage collector may run code that logs while the same thread is in the middle of a line.
    """

    def __init__(self, dropped_line: Callable[[int], str], descriptor: int = STANDARD_ERROR) -> None:
        """``dropped_line`` returns the line that says how many lines were dropped.

        Lines are written to the file descriptor. Python's own buffer for it would have to be flushed at the end, and
        the process could not end while a thread waits in it.
        """
        self._dropped_line = dropped_line
        self._descriptor = descriptor
        self._waiting: SimpleQueue[str | threading.Event] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.dropped = 0
        """The number of lines that were dropped so far."""

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_waiting, name="log", daemon=True)
            self._thread.start()

    def write(self, line: str) -> None:
        """Return immediately."""
        if self._waiting.qsize() < MAX_WAITING_LINES:
            self._waiting.put(line)
        else:
            self.dropped += 1

    debug = info = warning = error = critical = write

    def flush(self) -> bool:
        """Wait until all lines are written. False if this takes longer than `FLUSH_S`."""
        if self._thread is None:
            return True
        written = threading.Event()
        self._waiting.put(written)
        return written.wait(FLUSH_S)

    def _write_waiting(self) -> None:
        reported = 0
        while True:
            lines, flushed = self._next_lines()
            dropped = self.dropped
            if dropped > reported:
                lines.append(self._dropped_line(dropped - reported))
                reported = dropped
            self._write_all(lines)
            for each in flushed:
                each.set()

    def _next_lines(self) -> tuple[list[str], list[threading.Event]]:
        """All that wait, at least one. Together, because this thread waits for its turn after each system call."""
        lines: list[str] = []
        flushed: list[threading.Event] = []
        for _ in range(max(1, self._waiting.qsize())):
            found = self._waiting.get()
            if isinstance(found, str):
                lines.append(found)
            else:
                flushed.append(found)
        return lines, flushed

    def _write_all(self, lines: list[str]) -> None:
        """Lines that cannot be written, because the disk is full or nobody reads them any more, are lost."""
        rest = "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace")
        with suppress(OSError):
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
