"""What can be measured, by name."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from tests.bench.inside.produce import PRODUCE_CASES, ProduceLoad
from tests.bench.inside.scene import Scene


class Step(Protocol):
    """What comes to the gateway in one turn of the event loop, and its work on that."""

    @property
    def batches(self) -> int:
        """Or commits, or whatever the figures are about."""

    async def run(self) -> None:
        """This alone is measured."""


class Load(Protocol):
    def next_step(self) -> Step:
        """The steps are to be run in order, each after it was made."""

    async def settle(self) -> None:
        """Return when every request is answered. Raises LoadError if an answer is wrong, and TimeoutError."""


CASES: dict[str, Callable[[Scene], Load]] = {case.name: partial(ProduceLoad, case=case) for case in PRODUCE_CASES}
