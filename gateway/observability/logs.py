"""Structured logs on standard error, one line for each event. They never contain record data."""

from __future__ import annotations

import atexit
import logging
import sys
import time
from collections.abc import Callable, MutableMapping
from typing import Any

import structlog

from gateway.observability.log_output import LogOutput

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
SPARSE_S = 1.0
LINES_PER_S = 20
"""Of an event that concerns one client, such as a closed connection. Others have one line a second."""
MAX_FACT_CHARACTERS = 1_000
"""Longer texts are cut: a client may choose a client id of 32 KB."""


_log = structlog.get_logger()


class SparseLog:
    """For events that clients can cause at any rate: each kind of event gets at most a few lines per second."""

    def __init__(self, log: Any, clock: Callable[[], float] = time.monotonic, lines: int = 1) -> None:
        self._log = log
        self._clock = clock
        self._lines = lines
        self._windows: dict[str, tuple[float, int]] = {}
        """The start of the present second, and the lines written in it, by event."""
        self._left_out: dict[str, int] = {}

    def info(self, event: str, **facts: Any) -> None:
        """`left_out` is the number of events of this kind that were not logged since its last line."""
        self._write(self._log.info, event, facts)

    def error(self, event: str, **facts: Any) -> None:
        """Like `info`."""
        self._write(self._log.error, event, facts)

    def warning(self, event: str, **facts: Any) -> None:
        """Like `info`."""
        self._write(self._log.warning, event, facts)

    def _write(self, write: Callable[..., Any], event: str, facts: dict[str, Any]) -> None:
        now_s = self._clock()
        begun_s, written = self._windows.get(event, (now_s, 0))
        if now_s >= begun_s + SPARSE_S:
            begun_s, written = now_s, 0
        if written >= self._lines:
            self._left_out[event] = self._left_out.get(event, 0) + 1
            return
        self._windows[event] = begun_s, written + 1
        cut = {name: fact[:MAX_FACT_CHARACTERS] if isinstance(fact, str) else fact for name, fact in facts.items()}
        write(event, left_out=self._left_out.pop(event, 0), **cut)


def _dropped_line(count: int) -> str:
    return str(structlog.wrap_logger(structlog.ReturnLogger()).error("log lines dropped", count=count))


_output = LogOutput(_dropped_line)


class _OfLibraries(logging.Handler):
    """Warnings of libraries become lines of this log."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            _log.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)
        except Exception:
            self.handleError(record)


_ignored = SparseLog(_log)


def log_ignored(ignored: sys.UnraisableHookArgs) -> None:
    """Log an exception that nobody can catch, for example of a callback of TLS: clients can cause them at any rate.
    Python would wait until standard error is read."""
    found = ignored.exc_type, ignored.exc_value, ignored.exc_traceback
    _ignored.error("exception ignored", where=str(ignored.err_msg or "unknown"), exc_info=found)


def configure(level: str, *, json: bool | None = None) -> None:
    """JSON if the output is not a terminal, columns if it is. The last lines are written when the process ends."""
    _output.start()
    atexit.register(flush)
    sys.unraisablehook = log_ignored
    logging.basicConfig(handlers=[_OfLibraries()], level=logging.WARNING)
    as_json = not sys.stderr.isatty() if json is None else json
    ending: list[structlog.types.Processor] = [structlog.processors.format_exc_info]
    if as_json:
        ending.append(structlog.processors.JSONRenderer())
    else:
        ending = [_escape, *ending, structlog.dev.ConsoleRenderer()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            *ending,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *_: _output,
    )


def flush() -> bool:
    """Wait until all lines are written. False if nobody reads them."""
    return _output.flush()


def dropped_lines() -> int:
    """The number of lines that were dropped because standard error was not read in time."""
    return _output.dropped


def _escape(_logger: Any, _method: str, facts: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Control characters of names that clients have chosen would write other lines, or command the terminal."""
    for name, fact in facts.items():
        if isinstance(fact, str) and not fact.isprintable():
            facts[name] = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in fact)
    return facts
