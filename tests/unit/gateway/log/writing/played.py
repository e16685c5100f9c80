"""Plays a history of random actions in a model world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tests.unit.event_loop import let_callbacks_run

Script = Sequence[tuple[str, int]]
"""(name of an action, number that it chooses by)."""


class Client(Protocol):
    def hear(self) -> None: ...


class World(Protocol):
    @property
    def clients(self) -> Sequence[Client]: ...

    def run(self, action: str, number: int) -> None: ...
    async def finish(self) -> None: ...
    def check(self) -> None: ...
    async def end(self) -> None: ...


async def play(new_world: Callable[[], World], script: Script) -> None:
    """The world is made in the running event loop."""
    world = new_world()
    for action, number in script:
        world.run(action, number)
        await let_callbacks_run()
        for client in world.clients:
            client.hear()
    await world.finish()
    world.check()
    await world.end()
