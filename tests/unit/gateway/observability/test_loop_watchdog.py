"""The watchdog of the event loop: what it logs when the loop is blocked."""

from __future__ import annotations

import asyncio
import linecache
import threading
import time

import pytest
from structlog.testing import capture_logs

from gateway.observability import loop_watchdog
from gateway.observability.loop_watchdog import LoopWatchdog
from gateway.observability.metrics import Metrics

COUNT = "kafka_gateway_event_loop_stall_seconds_count"


def hold_the_loop(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


async def test_a_stall_is_counted_and_its_place_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_watchdog, "PING_S", 0.001)
    metrics = Metrics()
    watchdog = LoopWatchdog(metrics)
    with capture_logs() as logs:
        watchdog.start()
        async with asyncio.timeout(30):
            while not any("hold_the_loop" in line.get("stack", "") for line in logs):  # others may stall it, too
                await asyncio.sleep(0.05)
                hold_the_loop(0.4)
    watchdog.stop()
    stall = next(line for line in logs if "hold_the_loop" in line.get("stack", ""))
    assert stall["wall_ms"] >= 100 and stall["cpu_ms"] > 0
    assert (metrics.registry.get_sample_value(COUNT) or 0) >= 1


def test_no_source_is_read_for_a_stack() -> None:
    linecache.clearcache()
    stack = loop_watchdog._stack(threading.get_ident())
    assert stack.startswith("_stack (loop_watchdog.py:") and "test_no_source_is_read_for_a_stack" in stack
    assert stack.count(" < ") < loop_watchdog.STACK_FRAMES
    assert not linecache.cache


async def test_a_stopped_watchdog_ends_its_thread() -> None:
    watchdog = LoopWatchdog(Metrics())
    watchdog.start()
    watchdog.stop()
    assert watchdog._thread is not None
    await asyncio.to_thread(watchdog._thread.join, 10)
    assert not watchdog._thread.is_alive()
