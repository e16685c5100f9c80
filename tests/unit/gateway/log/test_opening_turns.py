"""The order in which logs are opened: every client gets its turn, even if others keep asking."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

import pytest

from gateway.log.opening_turns import CLIENTS_COMPARED, NOBODY, OpeningTurns


class Scene:
    """One turn at a time."""

    def __init__(self) -> None:
        self.turns = OpeningTurns(1)
        self.served: list[Hashable] = []
        self.order: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []

    def ask(self, whose: Hashable, *, then_another: int = 0) -> None:
        """When it is served, ``then_another`` clients follow, one after the other."""
        self.tasks.append(asyncio.create_task(self._open(len(self.tasks), whose, then_another)))

    async def _open(self, key: int, whose: Hashable, then_another: int) -> None:
        async with self.turns.turn(key, urgent=False, whose=whose):
            self.served.append(whose)
            self.order.append(key)
            if then_another:
                self.ask(("next", key), then_another=then_another - 1)
            await asyncio.sleep(0)

    async def run(self) -> None:
        while not all(task.done() for task in self.tasks):
            await asyncio.gather(*self.tasks)


@pytest.mark.parametrize("large", ["client", NOBODY])
async def test_a_client_with_many_logs_goes_on_while_others_ask_for_few(large: str) -> None:
    scene = Scene()
    for first in ("a", "b", "c"):
        scene.ask(first, then_another=200)
    for _ in range(10):
        scene.ask(large)
    await scene.run()
    assert len(scene.served) == 613
    last = max(number for number, whose in enumerate(scene.served) if whose == large)
    assert last < 60


async def test_the_choice_does_not_depend_on_the_number_of_clients() -> None:
    scene = Scene()
    for client in range(3 * CLIENTS_COMPARED):
        for _ in range(2):
            scene.ask(client)
    scene.ask("one")
    await scene.run()
    assert sorted(map(str, scene.served)) == sorted([*map(str, range(3 * CLIENTS_COMPARED))] * 2 + ["one"])


@pytest.mark.parametrize("large", ["client", NOBODY])
async def test_a_client_that_asks_for_what_another_waits_for_is_served_soon(large: str) -> None:
    scene = Scene()
    scene.ask("busy")
    for _ in range(20):
        scene.ask(large)
    await asyncio.sleep(0)  # all wait but the first
    scene.turns.share(19, "second")
    scene.turns.share(19, large)  # it still waits for more
    scene.turns.share(0, "second")  # has its turn already
    scene.turns.share("absent", "second")
    await scene.run()
    assert scene.order.index(19) <= 3
    assert sorted(scene.order) == list(range(21))
