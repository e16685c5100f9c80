"""The memory of requests: which connections may read while it is short."""

from __future__ import annotations

import asyncio

import pytest

from gateway.network import request_budget
from gateway.network.request_budget import RequestBudget
from gateway.observability.metrics import Tally

BUDGET = 1_000


class Connection:
    def __init__(self, budget: RequestBudget, *, mid_frame: bool = True) -> None:
        self.budget = budget
        self.mid_frame = mid_frame
        self.reads = True
        self.closed: str | None = None

    def regulate_reading(self) -> None:
        self.reads = self.budget.may_read(self)

    def close(self, reason: str) -> None:
        self.closed = reason
        self.budget.forget(self)


@pytest.fixture
def budget() -> RequestBudget:
    return RequestBudget(BUDGET, Tally(), lambda: None)


async def test_everybody_reads_below_the_budget(budget: RequestBudget) -> None:
    budget.received(BUDGET - 1)
    assert all(budget.may_read(Connection(budget)) for _ in range(3))


async def test_above_it_one_request_after_the_other_gets_whole(budget: RequestBudget) -> None:
    first, second, between = Connection(budget), Connection(budget), Connection(budget, mid_frame=False)
    budget.received(BUDGET)
    for connection in (between, first, second):
        connection.regulate_reading()
    assert [first.reads, second.reads, between.reads] == [True, False, False]
    first.mid_frame = False  # its request is complete
    first.regulate_reading()
    assert [first.reads, second.reads, between.reads] == [False, True, False]
    budget.released(BUDGET)
    assert first.reads and second.reads and between.reads


async def test_who_leaves_makes_way(budget: RequestBudget) -> None:
    first, second = Connection(budget), Connection(budget)
    budget.received(BUDGET)
    first.regulate_reading()
    second.regulate_reading()
    assert not second.reads
    budget.forget(first)
    assert second.reads


async def test_who_sends_no_more_is_closed(budget: RequestBudget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_budget, "RECEIVE_S", 0.01)
    silent, waiting = Connection(budget), Connection(budget)
    budget.received(BUDGET)
    silent.regulate_reading()
    waiting.regulate_reading()
    async with asyncio.timeout(10):
        while silent.closed is None:
            await asyncio.sleep(0.001)
    assert waiting.reads and waiting.closed is None
    budget.released(BUDGET)
    await asyncio.sleep(0.03)
    assert waiting.closed is None, "memory is no longer short"


async def test_who_waits_is_woken_below_the_budget_in_the_end(
    budget: RequestBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that wait for long, for instance for a group's members, may hold most of it all the time."""
    monkeypatch.setattr(request_budget, "RESUME_S", 0.001)
    waiting = Connection(budget, mid_frame=False)
    budget.received(BUDGET)
    waiting.regulate_reading()
    budget.released(1)
    assert not waiting.reads
    async with asyncio.timeout(10):
        while not waiting.reads:
            await asyncio.sleep(0.001)


async def test_a_cluster_that_has_used_its_share_waits_and_others_read(budget: RequestBudget) -> None:
    greedy, modest = (RequestBudget(BUDGET // 2, Tally(), lambda: None, budget) for _ in range(2))
    flood, quiet = Connection(greedy, mid_frame=False), Connection(modest, mid_frame=False)
    greedy.received(BUDGET // 2)
    for connection in (flood, quiet):
        connection.regulate_reading()
    assert not flood.reads and quiet.reads and greedy.is_short and not modest.is_short
    modest.received(BUDGET // 2)
    quiet.regulate_reading()
    assert not quiet.reads and budget.exhausted, "both together have used it all"
    greedy.released(BUDGET // 2)
    assert flood.reads
    modest.released(BUDGET // 2)
    assert quiet.reads


async def test_in_a_full_share_one_request_after_the_other_gets_whole(
    budget: RequestBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the budget is full: of incomplete requests only, some must fail."""
    monkeypatch.setattr(request_budget, "RECEIVE_S", 0.01)
    shares = [RequestBudget(BUDGET // 2, Tally(), lambda: None, budget) for _ in range(2)]
    halves = [[Connection(share) for _ in range(300)] for share in shares]
    for share, connections in zip(shares, halves, strict=True):
        share.received(BUDGET // 2)
        for connection in connections:
            connection.regulate_reading()
        assert sum(connection.reads for connection in connections) <= 1
    async with asyncio.timeout(10):
        while not all(any(each.closed for each in connections) for connections in halves):
            await asyncio.sleep(0.001)


async def test_a_request_that_waits_for_its_share_makes_way_in_the_whole_budget(budget: RequestBudget) -> None:
    """One request is received at a time: the share and the budget must not choose different ones."""
    share, other = (RequestBudget(BUDGET // 2, Tally(), lambda: None, budget) for _ in range(2))
    first, second = Connection(share), Connection(share)
    share.received(BUDGET // 2 - 1)
    other.received(BUDGET // 2 + 1)
    for connection in (first, second):
        connection.regulate_reading()
    assert first.reads and not second.reads
    share.received(1)  # by the first one, which fills the share
    for connection in (second, first):
        connection.regulate_reading()
    assert first.reads or second.reads


async def test_the_waiting_ones_are_woken_in_slices_as_long_as_there_is_room(
    budget: RequestBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be twenty thousand of them. They would all read, and then all be paused again."""
    monkeypatch.setattr(request_budget, "WOKEN_AT_ONCE", 2)
    budget.received(BUDGET)
    waiting = [Connection(budget, mid_frame=False) for _ in range(7)]
    for connection in waiting:
        connection.regulate_reading()
    budget.released(BUDGET)
    for reading in (2, 4):
        assert [connection.reads for connection in waiting] == [True] * reading + [False] * (7 - reading)
        await asyncio.sleep(0)
    budget.received(BUDGET)  # by those that read now
    await asyncio.sleep(0)
    assert [connection.reads for connection in waiting] == [True] * 6 + [False]
    budget.released(BUDGET)
    assert waiting[-1].reads


async def test_one_request_gets_whole_though_those_that_were_woken_have_used_all_memory_again(
    budget: RequestBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their requests wait for their clients, and the others were not woken yet."""
    monkeypatch.setattr(request_budget, "WOKEN_AT_ONCE", 2)
    budget.received(BUDGET)
    woken, first = [Connection(budget, mid_frame=False) for _ in range(2)], Connection(budget)
    waiting = [Connection(budget) for _ in range(3)]
    for connection in (*woken, first, *waiting):
        connection.regulate_reading()
    budget.released(BUDGET)
    assert all(connection.reads for connection in woken)
    budget.received(BUDGET)
    for connection in (*woken, first):
        budget.forget(connection)
    await asyncio.sleep(0)
    assert sum(connection.reads for connection in waiting) == 1
