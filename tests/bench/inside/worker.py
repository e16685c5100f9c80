"""One commit's side of a comparison: reads names of cases, and answers each with the CPU of a slice, in µs a batch.

Run with the commit's own sources first in PYTHONPATH.
"""

import sys
import time

import uvloop

from gateway.garbage_collection import GarbageCollection
from tests.bench.inside.cases import CASES, Load
from tests.bench.inside.instructions import BEGIN, DUMP, START, TOGGLE, Counter
from tests.bench.inside.scene import Scene

SLICE_BATCHES = 300
COUNTED_BATCHES = 200
WARM_UP_STEPS = 6
READY = "ready"


class Worker:
    """Must be constructed in the event loop."""

    def __init__(self) -> None:
        self.scene = Scene()
        GarbageCollection().start()
        self._loads: dict[str, Load] = {}

    async def load(self, name: str) -> Load:
        """The load of the case. Its log is open, and every client has been answered."""
        load = self._loads.get(name)
        if load is None:
            load = self._loads[name] = CASES[name](self.scene)
        self.scene.fleet.beat()
        await warm_up(load)
        return load

    async def slice(self, name: str) -> float:
        """µs of CPU a batch."""
        return await measured_us(await self.load(name))

    async def count(self, name: str, counter: Counter) -> int:
        """Count the instructions of some batches. Returns the number of batches."""
        load, batches = await self.load(name), 0
        while batches < COUNTED_BATCHES:
            step = load.next_step()
            counter.request(TOGGLE)
            await step.run()
            counter.request(TOGGLE)
            batches += step.batches
        counter.request(DUMP)
        await load.until_all_answered()
        return batches


async def warm_up(load: Load) -> None:
    for _ in range(WARM_UP_STEPS):
        await load.next_step().run()
        await load.until_all_answered()


async def measured_us(load: Load, at_least: int = SLICE_BATCHES) -> float:
    """µs of CPU a batch, in one slice of at least so many batches."""
    batches, used_ns = 0, 0
    while batches < at_least:
        step = load.next_step()
        begun_ns = time.thread_time_ns()
        await step.run()
        used_ns += time.thread_time_ns() - begun_ns
        batches += step.batches
    await load.until_all_answered()
    return used_ns / batches / 1000


async def _serve() -> None:
    worker = Worker()
    if sys.argv[1:] == [BEGIN]:
        counter = Counter()
        counter.request(START)
        for line in sys.stdin:
            print(BEGIN, await worker.count(line.strip(), counter))
        return
    print(READY, flush=True)
    for line in sys.stdin:
        print(READY, await worker.slice(line.strip()), flush=True)


if __name__ == "__main__":
    uvloop.run(_serve())
