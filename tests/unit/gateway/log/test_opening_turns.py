"""Who opens logs next: nobody waits without end, whoever asks meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

import pytest

from gateway.errors import KafkaError
from gateway.log import patience
from gateway.log.opening_turns import CLIENTS_COMPARED, NOBODY, OpeningTurns
from gateway.pulsar.errors import ConnectionLostError
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.test_registry import TOPIC
from tests.unit.gateway.log.test_registry import Scene as Registry


class Scene:
    """One turn at a time."""

    def __init__(self) -> None:
        self.turns = OpeningTurns(1)
        self.served: list[Hashable] = []
        self.tasks: list[asyncio.Task[None]] = []

    def ask(self, whose: Hashable, *, then_another: int = 0) -> None:
        """When it is served, ``then_another`` clients follow, one after the other."""
        self.tasks.append(asyncio.create_task(self._open(len(self.tasks), whose, then_another)))

    async def _open(self, key: int, whose: Hashable, then_another: int) -> None:
        async with self.turns.turn(key, urgent=False, whose=whose):
            self.served.append(whose)
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


async def test_what_fails_slowly_comes_behind_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 0)
    scene = Registry(max_log_openings=1)

    async def fail(topic: str) -> None:
        raise ConnectionLostError("lost")

    monkeypatch.setattr(scene.topic, "managed_ledger", fail)
    with pytest.raises((KafkaError, ConnectionLostError)):
        await scene.registry.open(TOPIC, 0)
    await let_callbacks_run()
    monkeypatch.undo()
    scene.topic.unavailable = {"topic-1": asyncio.Event()}
    tasks = [asyncio.ensure_future(scene.registry.open(TOPIC, partition, whose=7)) for partition in range(1, 4)]
    tasks.append(asyncio.ensure_future(scene.registry.open(TOPIC, 0, urgent=True)))
    await let_callbacks_run()
    scene.topic.asked.clear()
    scene.topic.unavailable["topic-1"].set()
    async with asyncio.timeout(5):
        await asyncio.gather(*tasks, return_exceptions=True)
    assert scene.topic.asked[-1] == "topic-0"
