"""The memory of requests in any history: nobody is forgotten, and nobody is closed who could not have been quicker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from gateway.network import request_budget
from gateway.network.request_budget import RECEIVE_S, RESUME_S, RequestBudget
from gateway.observability.metrics import Tally

BUDGET = 1_000
STEPS = 200
MAX_CONNECTIONS = 8


class Timer:
    """It expires when the history says so."""

    def __init__(self, loop: asyncio.AbstractEventLoop, delay_s: float, call: Callable[..., None], arguments: Any):
        self._loop, self.delay_s, self._call, self._arguments = loop, delay_s, call, arguments
        self.is_over = False

    def when(self) -> float:
        return self._loop.time() + self.delay_s

    def cancel(self) -> None:
        self.is_over = True

    def expire(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._call(*self._arguments)


class Connection:
    def __init__(self, budget: RequestBudget) -> None:
        self.budget = budget
        self.part = self.whole = 0
        """The bytes of the request that is being received, and of those that run."""
        self.has_backlog = self.closed = False
        self.reads = True

    @property
    def mid_frame(self) -> bool:
        return self.part > 0

    @property
    def may_be_too_slow(self) -> bool:
        return self.reads and self.mid_frame

    def regulate_reading(self) -> None:
        if self.closed:
            return
        if self.has_backlog:
            self.budget.forget(self)
        self.reads = not self.has_backlog and self.budget.may_read(self)

    def receive(self, size_bytes: int, *, completes: bool, has_backlog: bool) -> None:
        self.part += size_bytes
        self.budget.received(size_bytes)
        if completes:
            self.whole, self.part, self.has_backlog = self.whole + self.part, 0, has_backlog
        self.regulate_reading()

    def answer(self) -> None:
        released, self.whole, self.has_backlog = self.whole, 0, False
        self.budget.released(released)
        self.regulate_reading()

    def close(self, reason: str = "") -> None:
        released, self.part, self.whole, self.closed = self.part + self.whole, 0, 0, True
        self.budget.forget(self)
        self.budget.released(released)


class History:
    def __init__(self, random: Random, monkeypatch: pytest.MonkeyPatch, *, shares: int) -> None:
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._timers: list[Timer] = []
        self._connections: list[Connection] = []
        self._soon: list[Callable[[], None]] = []
        monkeypatch.setattr(self._loop, "call_later", self._call_later, raising=False)
        monkeypatch.setattr(RequestBudget, "_wake_soon", lambda budget: self._soon.append(budget._wake_some))
        self.whole = RequestBudget(BUDGET, Tally(), self._regulate_all)
        sizes = [random.choice([400, 600, BUDGET]) for _ in range(shares)]
        self._budgets = [RequestBudget(size, Tally(), self._regulate_all, self.whole) for size in sizes] or [self.whole]

    def _call_later(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> Timer:
        self._timers.append(Timer(self._loop, delay_s, call, arguments))
        return self._timers[-1]

    def turns(self, most: int = 1_000) -> None:
        """Turns of the event loop: until nothing is left to do, or fewer."""
        for _ in range(most):
            if not self._soon:
                break
            self._soon.pop(0)()

    def _regulate_all(self) -> None:
        for each in self._connections:
            each.regulate_reading()

    @property
    def open(self) -> list[Connection]:
        return [each for each in self._connections if not each.closed]

    def step(self) -> None:
        random, drawn, some = self._random, self._random.random(), self.open
        if not some or (drawn < 0.1 and len(some) < MAX_CONNECTIONS):
            self._connections.append(Connection(random.choice(self._budgets)))
            self._connections[-1].regulate_reading()
            return
        chosen = random.choice(some)
        if drawn < 0.5 and chosen.reads:
            size_bytes, completes = random.choice([1, 50, 100, 200]), random.random() < 0.4
            chosen.receive(size_bytes, completes=completes, has_backlog=random.random() < 0.4)
        elif drawn < 0.75:
            chosen.answer()
        elif drawn < 0.8:
            chosen.close()
        elif drawn < 0.9:
            self.expire(RESUME_S)
        else:
            self.expire(RECEIVE_S)

    def expire(self, delay_s: float) -> None:
        """All timers of this kind expire. A connection that is closed by one has had the time to send."""
        could_send = {each: each.may_be_too_slow for each in self.open}
        due = [each for each in self._timers if (each.delay_s > RESUME_S) == (delay_s > RESUME_S)]
        self._timers = [each for each in self._timers if each not in due]
        for timer in due:
            timer.expire()
        assert all(could_send[each] for each in could_send if each.closed)

    def check(self) -> None:
        self.turns(self._random.randrange(4))
        assert self.whole._held.value == sum(each.part + each.whole for each in self.open)
        if self._random.random() < 0.5:
            return
        self.turns()
        some = self.open
        incomplete = [each for each in some if each.mid_frame]
        if incomplete and not any(each.whole for each in some):
            assert any(each.reads for each in incomplete), "nothing would ever give back memory"

    def end(self) -> None:
        """Everything is received and answered."""
        for each in self.open:
            each.whole, each.part = each.whole + each.part, 0
            each.answer()
        self.expire(RESUME_S)
        self.turns()
        assert self.whole._held.value == 0
        assert all(each.reads for each in self.open)
        before = self.open
        self.expire(RECEIVE_S)
        assert self.open == before


@pytest.mark.parametrize("at_once", [1, 100])
@pytest.mark.parametrize("shares", [0, 2])
@pytest.mark.parametrize("seed", range(50))
async def test_any_history(monkeypatch: pytest.MonkeyPatch, seed: int, shares: int, at_once: int) -> None:
    monkeypatch.setattr(request_budget, "WOKEN_AT_ONCE", at_once)
    history = History(Random(seed), monkeypatch, shares=shares)
    for _ in range(STEPS):
        history.step()
        history.check()
    history.end()


async def test_a_request_that_is_complete_is_not_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room again, but not so much yet that everybody is woken."""
    history = History(Random(0), monkeypatch, shares=0)
    first, other = Connection(history.whole), Connection(history.whole)
    other.receive(BUDGET - 100, completes=True, has_backlog=False)
    first.receive(100, completes=False, has_backlog=False)
    other.receive(1, completes=False, has_backlog=False)
    history.whole.released(50)
    first.receive(1, completes=True, has_backlog=False)
    history.expire(RECEIVE_S)
    assert not first.closed


async def test_who_waits_for_other_clusters_is_not_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(Random(0), monkeypatch, shares=0)
    shares = [RequestBudget(BUDGET // 2, Tally(), lambda: None, history.whole) for _ in range(2)]
    waiting, slow = (Connection(share) for share in shares)
    waiting.receive(BUDGET // 2, completes=False, has_backlog=False)
    slow.receive(BUDGET // 2, completes=False, has_backlog=False)
    waiting.regulate_reading()
    assert slow.reads and not waiting.reads
    history.expire(RECEIVE_S)
    assert slow.closed and waiting.reads and not waiting.closed
