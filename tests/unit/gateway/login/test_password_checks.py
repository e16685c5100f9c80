"""Checks of passwords take turns by site."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

import pytest

from gateway.login.password_checks import PasswordChecks
from tests.unit.event_loop import let_callbacks_run

BUSY, OTHER = "192.0.2.1", "192.0.2.2"


class Scene:
    """One thread, which is kept busy until `go_on`."""

    def __init__(self) -> None:
        self.checks = PasswordChecks(threads=1)
        self.ran: list[str] = []
        self._may_end = threading.Event()

    def begin(self, site: str, name: str) -> asyncio.Task[None]:
        return asyncio.create_task(self.checks.run(site, lambda: self._check(name)))

    def close(self) -> None:
        self.go_on()
        self.checks.close()

    def go_on(self) -> None:
        self._may_end.set()

    def _check(self, name: str) -> None:
        self._may_end.wait(10)
        self.ran.append(name)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with contextlib.closing(Scene()) as found:
        yield found


async def test_a_site_with_many_checks_delays_others_by_one(scene: Scene) -> None:
    many = [scene.begin(BUSY, f"busy {number}") for number in range(5)]
    await let_callbacks_run()
    other = [scene.begin(OTHER, "other")]
    await let_callbacks_run()
    scene.go_on()
    await asyncio.gather(*many, *other)
    assert scene.ran == ["busy 0", "busy 1", "other", "busy 2", "busy 3", "busy 4"]


async def test_who_leaves_while_it_waits_has_no_turn(scene: Scene) -> None:
    tasks = [scene.begin(BUSY, f"{number}") for number in range(4)]
    await let_callbacks_run()
    for task in tasks[1:3]:
        task.cancel()
    await let_callbacks_run()
    scene.go_on()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert scene.ran == ["0", "3"]
    await scene.begin(OTHER, "later")
    assert scene.checks._waiting == {} and scene.checks._free == 1


async def test_a_check_keeps_its_thread_until_it_ends(scene: Scene) -> None:
    """Or those who connect and go would fill the threads' own queue, which knows no sites."""
    first = scene.begin(BUSY, "first")
    await let_callbacks_run()
    first.cancel()
    second = scene.begin(BUSY, "second")
    await let_callbacks_run()
    assert first.cancelled() and scene.checks._free == 0 and list(scene.checks._waiting) == [BUSY]
    scene.go_on()
    await second
    assert scene.ran == ["first", "second"]


async def test_who_leaves_at_its_turn_gives_it_on(scene: Scene) -> None:
    tasks = [scene.begin(BUSY, f"{number}") for number in range(3)]
    await let_callbacks_run()
    turn = next(iter(scene.checks._waiting[BUSY]))
    scene.go_on()
    while not turn.done():
        await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert scene.ran[-1] == "2" and tasks[2].exception() is None


async def test_a_check_that_fails(scene: Scene) -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await scene.checks.run(BUSY, fail)
    scene.go_on()
    await scene.begin(BUSY, "next")
    assert scene.ran == ["next"]
