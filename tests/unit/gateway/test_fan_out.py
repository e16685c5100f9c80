"""Fan-out of large requests: order, bound, slices, and the state after an exception or a cancellation."""

from __future__ import annotations

import asyncio
from itertools import count, pairwise

import pytest

from gateway import fan_out as module
from gateway.fan_out import cluster_at_work, fan_out


async def test_results_are_in_order_and_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE_S", 60.0)
    running, most = 0, 0

    async def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(number % 3):
            await asyncio.sleep(0)
        running -= 1
        return number * 2

    assert await fan_out(work, range(100), at_once=7) == [number * 2 for number in range(100)]
    assert most == 7


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_few(count: int) -> None:
    async def work(number: int) -> int:
        return number

    assert await fan_out(work, range(count)) == list(range(count))


@pytest.mark.parametrize("at_once", [1, 8])
async def test_others_have_their_turn_between_slices(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """The work itself never waits. Here each look at the clock uses a part of a slice."""
    clock = count(step=0.6 * module.SLICE_S)
    monkeypatch.setattr(module, "monotonic", lambda: next(clock))
    done, seen = 0, [0]

    async def work(number: int) -> None:
        nonlocal done
        done += 1

    async def other() -> None:
        while done < 50:
            await asyncio.sleep(0)
            seen.append(done)

    watching = asyncio.create_task(other())
    await fan_out(work, range(50), at_once=at_once)
    await watching
    assert max(later - earlier for earlier, later in pairwise(seen)) <= 2


async def test_an_exception_ends_the_rest() -> None:
    started: list[int] = []
    never = asyncio.Event()

    async def work(number: int) -> None:
        started.append(number)
        if number == 3:
            raise ValueError("three")
        await never.wait()

    with pytest.raises(ValueError, match="three"):
        await fan_out(work, range(1000), at_once=5)
    await asyncio.sleep(0)
    assert len(started) <= 5
    assert len(asyncio.all_tasks()) == 1


async def test_cancellation_ends_the_rest() -> None:
    never = asyncio.Event()

    async def work(number: int) -> None:
        await never.wait()

    running = asyncio.create_task(fan_out(work, range(1000), at_once=5))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1


async def test_work_goes_on_though_each_turn_is_longer_than_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others work much, too: whenever this request has its turn, its slice would be over already."""
    clock = count(step=10 * module.SLICE_S)
    monkeypatch.setattr(module, "monotonic", lambda: next(clock))

    async def work(number: int) -> int:
        return number

    async with asyncio.timeout(5):
        assert await fan_out(work, range(200)) == list(range(200))


class Loop:
    """Counts the items that are worked on in each turn of the event loop. Each takes a quarter of a slice."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.items: dict[str, int] = {}
        monkeypatch.setattr(module, "monotonic", lambda: self.now_s)

    async def request(self, name: str, cluster: int, items: int) -> None:
        async def work(_: int) -> None:
            self.now_s += module.SLICE_S / 4
            self.items[name] = self.items.get(name, 0) + 1

        cluster_at_work.set(cluster)
        await fan_out(work, range(items), at_once=1)

    async def turn(self) -> dict[str, int]:
        self.items.clear()
        await asyncio.sleep(0)
        return dict(self.items)


async def test_many_requests_do_not_make_a_turn_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(monkeypatch)
    requests = [asyncio.create_task(loop.request(f"r{number}", 1, 40)) for number in range(20)]
    seen: list[str] = []
    while not all(request.done() for request in requests):
        worked = await loop.turn()
        assert sum(worked.values()) <= 5  # one may begin within the slice, and end after it
        seen += worked
    assert len({*seen[:21]}) == 20, "they take turns"


async def test_each_cluster_has_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(monkeypatch)
    flood = [asyncio.create_task(loop.request("flood", 1, 1_000)) for _ in range(50)]
    for _ in range(10):
        await loop.turn()
    quiet = asyncio.create_task(loop.request("quiet", 2, 3))
    turns = 0
    while not quiet.done():
        await loop.turn()
        turns += 1
    assert turns <= 4
    for each in flood:
        each.cancel()
    await asyncio.wait(flood)


async def test_a_request_that_goes_while_it_waits_takes_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(monkeypatch)
    requests = [asyncio.create_task(loop.request(f"r{number}", 1, 10)) for number in range(10)]
    await loop.turn()
    await loop.turn()
    for each in requests[:-1]:
        each.cancel()
    await asyncio.wait(requests[:-1])
    async with asyncio.timeout(5):
        await requests[-1]
    assert not any(turn._waiting for turn in module._turns[asyncio.get_running_loop()].values())


async def test_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE_S", 0.0)
    monkeypatch.setattr(module, "STEP_ITEMS", 2)
    seen: list[list[int]] = []

    async def read() -> None:
        async for some in module.in_steps(range(5)):
            seen.append([*some])

    reading, turns = asyncio.create_task(read()), []
    while not reading.done():
        await asyncio.sleep(0)
        turns.append(len(seen))
    assert seen == [[0, 1], [2, 3], [4]]
    assert {1, 2, 3} <= {*turns}


async def test_sorted_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE_S", 0.0)
    monkeypatch.setattr(module, "STEP_ITEMS", 1)
    monkeypatch.setattr(module, "SORTED_AT_ONCE", 2)
    names = ["c", "e", "a", "d", "b"]
    sorting, turns = asyncio.create_task(module.sorted_in_slices(names)), 0
    while not sorting.done():
        turns += 1
        await asyncio.sleep(0)
    assert sorting.result() == ["a", "b", "c", "d", "e"]
    assert turns > 1.5 * len(names), "to sort, and to merge"
    assert await module.sorted_in_slices(["b", "a"]) == ["a", "b"]
