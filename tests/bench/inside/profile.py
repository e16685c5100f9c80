"""The functions that take the calls and the time of a case."""

import cProfile
import pstats
import time
from pathlib import Path

from tests.bench.inside.worker import SLICE_BATCHES, Worker
from tests.support.gateway_process import REPOSITORY

ROWS = 70


async def show(case: str) -> None:
    """Print calls a batch, the most expensive functions first. The profiler adds its own time to each call."""
    worker = Worker()
    load = await worker.load(case)
    broker, profiler, batches = worker.scene.broker, cProfile.Profile(time.thread_time), 0
    writes, entries = broker.writes, broker.entries
    while batches < SLICE_BATCHES:
        step = load.next_step()
        profiler.enable()
        await step.run()
        profiler.disable()
        batches += step.batches
    writes, entries = broker.writes - writes, broker.entries - entries
    await load.until_all_answered()
    rows = pstats.Stats(profiler).stats.items()  # type: ignore[attr-defined]
    python = sum(row[1] for (file, _, _), row in rows if file != "~")
    own = sum(row[1] for (file, _, _), row in rows if file == "~")
    print(f"{case}: {python / batches:.1f} Python and {own / batches:.1f} C calls a batch,")
    print(f"{entries / batches:.2f} entries, {writes / batches:.2f} writes to the broker")
    for (file, line, name), (_, calls, own_s, _, _) in sorted(rows, key=lambda row: -row[1][2])[:ROWS]:
        where = "" if file == "~" else f"{_short(file)}:{line} "
        print(f"{own_s / batches * 1e6:7.2f} µs {calls / batches:6.2f}  {where}{name}")


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(REPOSITORY)) if path.is_relative_to(REPOSITORY) else path.name
