"""Standard error, where the log goes: a thread writes the lines, so a pipe that nobody reads blocks no event loop.

Lines wait in memory, `MAX_WAITING_LINES` at most. Further lines are dropped and counted. When the log is read again, a
line says how many were dropped.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
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
        self._refused = 0
        """Lines for which there was no place in the queue: only the callers of `write` count them."""
        self._unwritten = 0
        """Lines that could not be written: only the thread counts them."""

    @property
    def dropped(self) -> int:
        """The number of lines that were lost so far."""
        return self._refused + self._unwritten

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_waiting, name="log", daemon=True)
            self._thread.start()

    def write(self, line: str) -> None:
        """Return immediately."""
        if self._waiting.qsize() < MAX_WAITING_LINES:
            self._waiting.put(line)
        else:
            self._refused += 1

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
            missing = self.dropped - reported
            try:
                report = [self._dropped_line(missing)] if missing else []
                unwritten = self._write_all(lines + report)
                reported += 0 if unwritten else missing
            except Exception:  # the thread must not end, and a log line about it would come here
                unwritten = len(lines)
            self._unwritten += min(unwritten, len(lines))
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

    def _write_all(self, lines: list[str]) -> int:
        """Returns the number of the last lines that could not be written whole: the disk is full, or nobody reads."""
        rest = memoryview("".join(f"{line}\n" for line in lines).encode(errors="backslashreplace"))
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # another process may have made the pipe non-blocking
                self._wait_until_writable()
            except OSError:
                return bytes(rest).count(b"\n")
        return 0

    def _wait_until_writable(self) -> None:
        waiting = select.poll()
        waiting.register(self._descriptor, select.POLLOUT)
        waiting.poll()
