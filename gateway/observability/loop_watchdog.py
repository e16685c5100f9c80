"""Reports a blocked event loop: a thread sends it a callback, and records its stack if the callback does not run.

A blocked loop answers no client, renews no lease and misses heartbeats. Work that takes longer than `STALL_S` has to
be cut into slices, or done in a thread.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from types import FrameType

import structlog

from gateway.observability.metrics import Metrics

PING_S = 0.05
STALL_S = 0.1
STACK_FRAMES = 12

log = structlog.get_logger()


class LoopWatchdog:
    """Watches the running event loop from `start` to `stop`."""

    def __init__(self, metrics: Metrics) -> None:
        self._stalls = metrics.loop_stalls
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Call it in the event loop's thread."""
        watched = asyncio.get_running_loop(), threading.get_ident()
        self._thread = threading.Thread(target=self._watch, args=watched, name="loop watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        cpu_clock = time.pthread_getcpuclockid(thread_id)
        while not self._stopped.wait(PING_S):
            answered = threading.Event()
            asked_s, cpu_s = time.monotonic(), time.clock_gettime(cpu_clock)
            try:
                loop.call_soon_threadsafe(answered.set)
            except RuntimeError:  # The event loop is closed.
                return
            if answered.wait(STALL_S):
                continue
            stack = _stack(thread_id)
            while not answered.wait(1.0):
                if self._stopped.is_set():
                    return
            self._report(time.monotonic() - asked_s, time.clock_gettime(cpu_clock) - cpu_s, stack)

    def _report(self, wall_s: float, cpu_s: float, stack: str) -> None:
        """`cpu_ms` shows whether the loop's thread was working, or got no CPU time."""
        self._stalls.observe(wall_s)
        log.warning("event loop stalled", wall_ms=round(wall_s * 1000), cpu_ms=round(cpu_s * 1000), stack=stack)


def _stack(thread_id: int) -> str:
    """The `traceback` module is not used, because it reads the source of every module on the stack, and keeps it."""
    frame: FrameType | None = sys._current_frames().get(thread_id)
    places: list[str] = []
    while frame is not None and len(places) < STACK_FRAMES:
        places.append(f"{frame.f_code.co_name} ({frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno})")
        frame = frame.f_back
    return " < ".join(places)
