"""Regular expressions take turns in their thread, and one that costs too much is given up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from coordinator.topic_regex import InvalidRegexError, Matches
from gateway.coordination import expressions
from gateway.coordination.expressions import FREE_S, PER_NAME_S, TURN_S, CostlyRegexError, Expression

TIMEOUT_S = 30.0


class Costs:
    """Expressions that match everything, and what each of their matches costs; the thread's clock is faked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **cost_s: float) -> None:
        self._cost_s = cost_s
        self._now_s = 0.0
        self.turns: list[tuple[str, list[str]]] = []
        """Whose turn it was, and the names that were tried."""
        self.while_matching: Callable[[], object] = lambda: None
        monkeypatch.setattr(expressions, "matcher", self._matcher)
        monkeypatch.setattr(expressions, "thread_time", lambda: self._now_s)

    def _matcher(self, regex: str) -> Matches:
        tried: list[str] = []
        self.turns.append((regex, tried))

        def is_match(name: str) -> bool:
            self._now_s += self._cost_s[regex]
            tried.append(name)
            self.while_matching()
            return True

        return is_match

    def names(self, regex: str) -> list[int]:
        """The number of names in each turn of the expression."""
        return [len(tried) for each, tried in self.turns if each == regex]


NAMES = [f"t{number}" for number in range(40)]


async def test_a_turn_ends_with_its_time_and_not_after_a_number_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = Costs(monkeypatch, costly=1.01 * TURN_S, cheap=0.101 * TURN_S)
    both = [Expression(regex).matching(NAMES) for regex in ("costly", "cheap")]
    assert await asyncio.gather(*both) == [frozenset(NAMES)] * 2
    assert [regex for regex, _ in costs.turns[:2]] == ["costly", "cheap"]
    assert costs.names("costly") == [1] * 40 + [0]
    assert costs.names("cheap") == [10] * 4 + [0]


async def test_what_costs_too_much_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = Costs(monkeypatch, costly=FREE_S / 10, ordinary=PER_NAME_S / 2)
    with pytest.raises(CostlyRegexError, match="100000 µs to match one name"):
        await Expression("costly").matching(NAMES)
    assert sum(costs.names("costly")) == 11
    many = [str(number) for number in range(3 * int(FREE_S / PER_NAME_S))]
    assert len(await Expression("ordinary").matching(many)) == len(many)


async def test_the_budget_is_for_all_names_of_one_use(monkeypatch: pytest.MonkeyPatch) -> None:
    Costs(monkeypatch, costly=FREE_S / 10)
    expression = Expression("costly")
    await expression.matching(NAMES[:6])
    with pytest.raises(CostlyRegexError):
        await expression.matching(NAMES[:6])


async def test_nothing_is_done_after_the_turn_for_somebody_who_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = Costs(monkeypatch, costly=TURN_S)
    is_matching, may_go_on = threading.Event(), threading.Event()

    def wait() -> None:
        is_matching.set()
        assert may_go_on.wait(TIMEOUT_S)

    costs.while_matching = wait
    task = asyncio.create_task(Expression("costly").matching(NAMES))
    await asyncio.to_thread(is_matching.wait, TIMEOUT_S)
    task.cancel()
    may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.get_running_loop().run_in_executor(expressions._thread, lambda: None)
    assert costs.names("costly") == [1]


async def test_real_expressions() -> None:
    assert await Expression("t[1-3]").matching(NAMES) == {"t1", "t2", "t3"}
    assert await Expression("t.*").matching([]) == frozenset()
    with pytest.raises(InvalidRegexError):
        await Expression("(").matching([])
