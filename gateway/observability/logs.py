"""Structured logs on standard error, one line an event; never record data."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Any

import structlog

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
SPARSE_S = 1.0


class SparseLog:
    """For what others can cause as often as they like: each kind of event has a line a second at the most."""

    def __init__(self, log: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._next_s: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def error(self, event: str, **facts: Any) -> None:
        """`left_out` tells how many were not logged since the last line of this event."""
        self._write(self._log.error, event, facts)

    def warning(self, event: str, **facts: Any) -> None:
        """As `error`."""
        self._write(self._log.warning, event, facts)

    def _write(self, write: Callable[..., Any], event: str, facts: dict[str, Any]) -> None:
        now_s = self._clock()
        if now_s < self._next_s.get(event, now_s):
            self._left_out[event] = self._left_out.get(event, 0) + 1
            return
        self._next_s[event] = now_s + SPARSE_S
        write(event, left_out=self._left_out.pop(event, 0), **facts)


def configure(level: str, *, json: bool | None = None) -> None:
    """JSON where a machine reads, columns where a person does."""
    as_json = not sys.stderr.isatty() if json is None else json
    renderer = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )
