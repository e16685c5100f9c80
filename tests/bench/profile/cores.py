"""What a case uses of the processor: the client, and each server. Linux only."""

import os
import resource
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tests.bench.loads.meter import Result
from tests.bench.process import idle_seconds, system_seconds, user_seconds, waiting_seconds

CLIENT = "client"


class Done(NamedTuple):
    """What a client did and used."""

    units: float
    """Records, batches or partitions."""
    a_second: float
    cpu_s: float
    idle_cores: float
    """Of the machine, meanwhile."""


class Use(NamedTuple):
    done: Done
    user_s: dict[str, float]
    """By process; that of the client includes its system time."""
    system_s: dict[str, float]
    waiting_s: dict[str, float]
    """For a core, by process: only its main thread."""

    def us_a_unit(self, name: str) -> float:
        return self.user_s[name] / self.done.units * 1e6 + self.system_us(name)

    def system_us(self, name: str) -> float:
        """What the kernel charges to it for each unit."""
        return self.system_s.get(name, 0.0) / self.done.units * 1e6

    def cores(self, name: str) -> float:
        return self.us_a_unit(name) * self.done.a_second / 1e6

    def waiting(self, name: str) -> float:
        """The share of the time for which it waited for a core."""
        return self.waiting_s[name] * self.done.a_second / self.done.units

    @property
    def other_cores(self) -> float:
        """Other processes of the machine, and work of the kernel that it charges to none."""
        return (os.cpu_count() or 1) - self.done.idle_cores - sum(map(self.cores, self.user_s))


def used(run: Callable[[], Done], servers: Mapping[str, int]) -> Use:
    """`servers` are process ids by name."""
    user_s = {name: user_seconds(pid) for name, pid in servers.items()}
    system_s = {name: system_seconds(pid) for name, pid in servers.items()}
    waiting_s = {name: waiting_seconds(pid) for name, pid in servers.items()}
    done = run()
    return Use(
        done, {CLIENT: done.cpu_s} | {name: user_seconds(pid) - user_s[name] for name, pid in servers.items()},
        {name: system_seconds(pid) - system_s[name] for name, pid in servers.items()},
        {name: waiting_seconds(pid) - waiting_s[name] for name, pid in servers.items()},
    )  # fmt: skip


def by_load(result: Result) -> Done:
    """The load generator measures itself from the end of its warm-up on."""
    batches, a_second = result["total_batches"], result["batches_per_s"]
    return Done(batches, a_second, batches * result["generator_busy"] / a_second, result["idle_cores"])


def by_process(units: float, run: Callable[[], float], start: Callable[[], object] | None = None) -> Done:
    """`run` is a client in this process, or in children of it, and returns its units a second.

    `start` does as little as possible: what it uses is not counted.
    """
    start_cpu_s, start_idle_s, start_s = _used_by(start or (lambda: None))
    rates: list[float] = []
    cpu_s, idle_s, elapsed_s = _used_by(lambda: rates.append(run()))
    return Done(units, rates[0], cpu_s - start_cpu_s, (idle_s - start_idle_s) / (elapsed_s - start_s))


def _used_by(work: Callable[[], object]) -> tuple[float, float, float]:
    """CPU of this process and its children, idle time of all cores, elapsed time; in seconds."""
    before = _own_seconds(), idle_seconds(), time.monotonic()
    work()
    return _own_seconds() - before[0], idle_seconds() - before[1], time.monotonic() - before[2]


def _own_seconds() -> float:
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in own)
