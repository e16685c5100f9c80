"""Runs a target's inputs one after the other, and keeps those with a new outcome.

An outcome is the text of the decoder's error without numbers and quotations. It does not measure coverage, but costs
next to nothing, and decoders with precise errors lead the inputs into their branches.
"""

from __future__ import annotations

import logging
import re
import time
import traceback
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import structlog

from tests.fuzz.mutation import Mutator
from tests.fuzz.target import Target

MAX_CPU_S = 0.1
"""CPU time of one input: the event loop must not be blocked longer."""
SUSPICIOUS_S = 0.05
MAX_GROWTH_BYTES = 48 * 1024 * 1024
"""Growth of the process by one input of at most 64 KiB."""
BLOCK_INPUTS = 1_000
"""Memory is measured after this number of inputs."""
MAX_KEPT, MAX_KEPT_BYTES = 2_000, 4_096
MAX_OUTCOME_CHARS = 80
_VARYING = re.compile(r"""0x[0-9a-f]+|'[^']*'|"[^"]*"|[-0-9]+""")


@dataclass(frozen=True)
class Finding:
    """An input that a decoder does not handle correctly."""

    target: str
    data: bytes
    what: str


@dataclass
class Result:
    target: str
    seed: int
    inputs: int = 0
    seconds: float = 0.0
    outcomes: int = 0
    kept: list[bytes] = field(default_factory=list)
    """Inputs with new outcomes, without the seeds."""
    findings: list[Finding] = field(default_factory=list)


def try_input(target: Target, data: bytes) -> tuple[str, str | None]:
    """(outcome, the defect or None)."""
    begun = time.perf_counter()
    try:
        outcome = target.check(data)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error} ({where.filename.rpartition('/')[2]}:{where.lineno} {where.name})"
        return what, what
    if time.perf_counter() - begun > SUSPICIOUS_S:
        cpu_s = _cpu_s(target, data)
        if cpu_s > MAX_CPU_S:
            return outcome, f"{cpu_s:.2f} s of CPU for {len(data)} bytes"
    return outcome, None


def _cpu_s(target: Target, data: bytes) -> float:
    """The best of three: other processes evict caches."""
    times = []
    for _ in range(3):
        begun = time.thread_time()
        target.check(data)
        times.append(time.thread_time() - begun)
    return min(times)


@contextmanager
def quiet() -> Iterator[None]:
    """Decoders that log refused inputs would do little else."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


class Campaign:
    def __init__(self, target: Target, seed: int, corpus: Sequence[bytes] = ()) -> None:
        self._target = target
        self._random = Random(f"{target.name} {seed}")
        self._mutator = Mutator(self._random)
        self._sources = [*target.seeds(self._random), *corpus]
        self._seen: set[str] = set()
        self._wrong: set[str | None] = set()
        self._block: list[bytes] = []
        self.result = Result(target.name, seed)

    def run(self, inputs: int, is_over: Callable[[], bool] = lambda: False) -> Result:
        """Valid inputs first, then damaged ones; ends early when `is_over`, which is called after each block."""
        result, begun = self.result, time.perf_counter()
        for source in list(self._sources):
            self._try(source, is_seed=True)
        while result.inputs < inputs and not is_over():
            self._block = []
            before_bytes = _reset_peak_bytes()
            for _ in range(min(BLOCK_INPUTS, inputs - result.inputs)):
                self._try(self._next())
            self._look_at_memory(before_bytes)
        result.seconds += time.perf_counter() - begun
        result.outcomes = len(self._seen)
        return result

    def _next(self) -> bytes:
        sources = self._sources
        data = self._mutator.mutate(sources[int(self._random.random() * len(sources))], sources)
        if self._target.repair is not None and self._random.getrandbits(2):
            self._target.repair(data)
        return bytes(data)

    def _try(self, data: bytes, *, is_seed: bool = False) -> None:
        self.result.inputs += 1
        self._block.append(data)
        outcome, wrong = try_input(self._target, data)
        outcome = _VARYING.sub("", outcome)[:MAX_OUTCOME_CHARS]
        place = wrong and wrong.rpartition("(")[2]
        if wrong is not None and place not in self._wrong:
            self._wrong.add(place)
            self.result.findings.append(Finding(self._target.name, data, wrong))
        if outcome not in self._seen:
            self._seen.add(outcome)
            if not is_seed and wrong is None and len(self.result.kept) < MAX_KEPT and len(data) <= MAX_KEPT_BYTES:
                self.result.kept.append(data)
                self._sources.append(data)

    def _look_at_memory(self, before_bytes: int) -> None:
        grown_bytes = _status_bytes("VmHWM") - before_bytes
        if grown_bytes > MAX_GROWTH_BYTES:
            sizes = {data: _allocated(self._target, data) for data in self._block}
            worst = max(sizes, key=lambda data: sizes[data])
            what = f"memory grew by {grown_bytes >> 20} MiB; Python took {sizes[worst] >> 20} MiB"
            self.result.findings.append(Finding(self._target.name, worst, what))


def _allocated(target: Target, data: bytes) -> int:
    tracemalloc.start()
    try:
        try_input(target, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _reset_peak_bytes() -> int:
    """Resident memory now; the process's peak is reset (proc_pid_clear_refs(5))."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status_bytes("VmRSS")


def _status_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024
