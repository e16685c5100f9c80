"""Counts batches over a time span, and measures the load generator's own use of the processor."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from tests.bench.process import idle_seconds

Result = dict[str, Any]

TIMEOUT_S = 20.0


class Meter:
    """Counts from the end of the warm-up to the end of the span; or from the first batch until `stop_after` batches."""

    def __init__(self, batch_records: int, *, stop_after: int = 0) -> None:
        self.total = 0
        self._batch_records = batch_records
        self._stop_after = stop_after
        self._enough = asyncio.Event()
        self._begin = (0.0, 0.0, 0.0, 0)
        self._result: Result = {}

    def count(self, batches: int = 1) -> None:
        self.total += batches
        if not self._stop_after:
            return
        if self.total == batches:
            self._mark()
        if self.total >= self._stop_after and not self._enough.is_set():
            self._finish()
            self._enough.set()

    async def run(self, warm_up_s: float, seconds: float) -> None:
        """Raises TimeoutError if the batches do not arrive."""
        started = time.perf_counter()
        if self._stop_after:
            await asyncio.wait_for(self._enough.wait(), TIMEOUT_S)
            self._result["first_batch_ms"] = (self._begin[0] - started) * 1000
            return
        await asyncio.sleep(warm_up_s)
        self._mark()
        await asyncio.sleep(seconds)
        self._finish()

    def result(self) -> Result:
        """`total_batches` includes the warm-up, and the batches that were in flight at the end."""
        return {**self._result, "total_batches": self.total}

    def _mark(self) -> None:
        self._begin = (time.perf_counter(), time.process_time(), idle_seconds(), self.total)

    def _finish(self) -> None:
        begin_s, begin_cpu_s, begin_idle_s, before = self._begin
        elapsed_s = max(time.perf_counter() - begin_s, 1e-9)
        batches_per_s = (self.total - before) / elapsed_s
        self._result = {
            "batches_per_s": batches_per_s,
            "records_per_s": batches_per_s * self._batch_records,
            "generator_busy": (time.process_time() - begin_cpu_s) / elapsed_s,
            "idle_cores": (idle_seconds() - begin_idle_s) / elapsed_s,
        }


def latencies(seconds: Sequence[float]) -> dict[str, float]:
    """p50 and p99 in milliseconds."""
    ordered = sorted(seconds)
    return {
        "p50": ordered[len(ordered) // 2] * 1000,
        "p99": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1000,
    }
