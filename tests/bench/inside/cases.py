"""The cases that can be measured, by name."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from tests.bench.inside import read
from tests.bench.inside.commit import COMMIT_CASES, CommitLoad
from tests.bench.inside.fetch import FETCH_CASES, FetchLoad
from tests.bench.inside.forward import FORWARD_CASES, ForwardLoad
from tests.bench.inside.produce import PRODUCE_CASES, ProduceLoad
from tests.bench.inside.scene import Scene


class Step(Protocol):
    """The input of the gateway in one turn of the event loop, and the work on it."""

    @property
    def batches(self) -> int:
        """The number of batches, or of commits, or of other units of the figures."""

    async def run(self) -> None:
        """The work. Only this is measured."""


class Load(Protocol):
    def next_step(self) -> Step:
        """The next step. Each step is run before the next one is created."""

    async def until_all_answered(self) -> None:
        """Return when every request is answered. Raises LoadError if a response is wrong, and TimeoutError."""


CASES: dict[str, Callable[[Scene], Load]] = {
    **{case.name: partial(ProduceLoad, case=case) for case in PRODUCE_CASES},
    **{case.name: partial(FetchLoad, case=case) for case in FETCH_CASES},
    read.NAME: read.ReadLoad,
    **{case.name: partial(ForwardLoad, case=case) for case in FORWARD_CASES},
    **{case.name: partial(CommitLoad, case=case) for case in COMMIT_CASES},
}
