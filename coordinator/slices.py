"""Work over all groups of a coordinator, in slices: between two slices the caller can answer requests."""

from collections import deque
from collections.abc import Generator
from typing import TypeVar

SLICE_UNITS = 1_000
"""Offsets, groups or members in one slice: about a millisecond of work."""

Steps = Generator[None, None, None]
"""Each step is a slice of the work."""
Result = TypeVar("Result")


def last_of(steps: Generator[None, None, Result]) -> Result:
    """The result after all steps, which are taken at once."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: Result = done.value
            return result


def begun(steps: Steps) -> Steps:
    """Runs the first step now, so that the `finally` of the steps will run, whether they end or are closed."""
    next(steps, None)
    return steps


class SliceCounter:
    """Counts the units of work of a slice."""

    def __init__(self, times: int = 1) -> None:
        """`times`: the slices are as many times as large, because clients wait for the work."""
        self._most = times * SLICE_UNITS
        self._units = 0

    def is_full(self, units: int) -> bool:
        """Whether the slice is full after these `units`; then the next one begins."""
        self._units += units
        if self._units < self._most:
            return False
        self._units = 0
        return True


class Background:
    """Jobs that run one after the other."""

    def __init__(self) -> None:
        self._jobs: deque[Steps] = deque()

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def start(self, job: Steps) -> None:
        self._jobs.append(job)

    def step(self) -> None:
        """Run the next slice."""
        if self._jobs and next(self._jobs[0], self) is self:
            self._jobs.popleft()

    def clear(self) -> None:
        """Close the unfinished jobs."""
        jobs, self._jobs = self._jobs, deque()
        for job in jobs:
            job.close()
