"""Two commits or interpreters in turns, each in a process of its own: slices of some milliseconds, one after the other.

Other load of the machine makes single slices slower, never faster. So the fastest quarter of them shows the cost.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from tests.bench.inside.worker import READY
from tests.support.gateway_process import REPOSITORY

ROUNDS = 40
PLACES = 4
"""One of this number of slices counts: the fastest ones."""


class Side(NamedTuple):
    sources: Path
    python: str = sys.executable
    """The interpreter; the dependencies are installed."""


class Cost(NamedTuple):
    """µs of CPU a batch, of each round."""

    before: list[float]
    after: list[float]

    @property
    def ratio(self) -> float:
        return quickest(self.after) / quickest(self.before)

    @property
    def median_ratio(self) -> float:
        """The median of the rounds' ratios."""
        return median(after / before for before, after in zip(self.before, self.after, strict=True))


def quickest(costs: Sequence[float]) -> float:
    return fmean(sorted(costs)[: max(1, len(costs) // PLACES)])


def compare(before: Side, after: Side, cases: Sequence[str], rounds: int = ROUNDS) -> dict[str, Cost]:
    """Raises RuntimeError when a side fails."""
    found = {case: Cost([], []) for case in cases}
    with ExitStack() as stack:
        sides = [stack.enter_context(_worker(side)) for side in (before, after)]
        for case, cost in found.items():  # not in turns: others would displace the batches that some read again
            for number in range(rounds):
                pairs = list(zip(cost, sides, strict=True))
                for costs, worker in pairs if number % 2 else reversed(pairs):
                    costs.append(_slice(worker, case))
    return found


@contextmanager
def _worker(side: Side) -> Iterator[subprocess.Popen[str]]:
    """Runs the commit's own scene. For a commit without a scene, it runs this one."""
    command = [side.python, "-P", "-m", "tests.bench.inside.worker"]
    environment = {"PYTHONPATH": f"{side.sources}:{REPOSITORY}", "PYTHONHASHSEED": "0"}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        try:
            _expect_line(process)
            yield process
        finally:
            process.stdin.close()


def _slice(worker: subprocess.Popen[str], case: str) -> float:
    assert worker.stdin is not None
    worker.stdin.write(f"{case}\n")
    worker.stdin.flush()
    return float(_expect_line(worker))


def _expect_line(worker: subprocess.Popen[str]) -> str:
    """The next line that is not a log line."""
    assert worker.stdout is not None
    for line in worker.stdout:
        if line.startswith(READY):
            return line.removeprefix(READY)
    raise RuntimeError("the worker has ended")
