"""ListTransactions: in slices; by a pattern, whose expression is matched in a thread, never on the event loop."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.topic_regex import Matches, matcher
from coordinator.transaction.messages import ListedTransaction, ListTransactionsResponse
from gateway.coordination import expressions
from gateway.coordination.expressions import FREE_S
from gateway.fan_out import STEP_ITEMS
from gateway.handlers.transactions import list_transactions
from protocol.kafka.errors import ErrorCode

NAMES = ("old", "young", "empty")


class Coordinator:
    """It has these ids, and is lost after some steps."""

    def __init__(self, names: Sequence[str], steps: int = 1_000_000) -> None:
        self.names = names
        self.left = steps
        self.in_steps: list[int] = []

    def transactional_ids(self) -> list[str]:
        return [*self.names]

    def list_transactions(self, asked: object, now_ms: int, among: Sequence[str]) -> ListTransactionsResponse:
        self.in_steps.append(len(among))
        if len(self.in_steps) > self.left:
            return ListTransactionsResponse(ErrorCode.NOT_COORDINATOR)
        found = [ListedTransaction(name, 1, "Ongoing") for name in among if name in self.names]
        return ListTransactionsResponse(ErrorCode.NONE, (), found)


async def listed(pattern: str | None, partitions: int = 1, coordinator: Coordinator | None = None) -> Any:
    coordinator = coordinator or Coordinator(NAMES)
    partition = SimpleNamespace(run=lambda ask: ask(coordinator, 0))
    request = SimpleNamespace(
        producer_id_filters=[], state_filters=[], duration_filter=-1, transactional_id_pattern=pattern
    )
    transactions = SimpleNamespace(partitions=[partition] * partitions, leads=lambda number: True)
    call: Any = SimpleNamespace(request=request, cluster=SimpleNamespace(transactions=transactions))
    response = await list_transactions.handle(call)
    return response.error_code or [row.transactional_id for row in response.transaction_states]


async def test_very_many_ids_are_looked_at_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.fan_out.SLICE_S", 0)
    coordinator = Coordinator([str(number) for number in range(10 * STEP_ITEMS + 1)])
    listing, turns = asyncio.create_task(listed(None, coordinator=coordinator)), 0
    while not listing.done():
        turns += 1
        await asyncio.sleep(0)
    assert listing.result() == coordinator.names
    assert max(coordinator.in_steps) == STEP_ITEMS
    assert turns >= len(coordinator.in_steps) == 11


@pytest.mark.parametrize("names", [(), [str(number) for number in range(3 * STEP_ITEMS)]])
async def test_a_coordinator_that_does_not_serve_is_not_taken_for_one_without_transactions(names: Any) -> None:
    lost = Coordinator(names, steps=2 if names else 0)
    assert await listed(None, coordinator=lost) == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (None, ["old", "young", "empty"]), ("", ["old", "young", "empty"]), ("[oy].*", ["old", "young"]), ("ol", []),
        ("(", ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)  # fmt: skip
async def test_by_pattern(pattern: str | None, expected: object) -> None:
    assert await listed(pattern) == expected


async def test_the_event_loop_matches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def compiled(regex: str) -> Matches:
        threads.append(threading.get_ident())
        return matcher(regex)

    monkeypatch.setattr(expressions, "matcher", compiled)
    assert await listed("o.*") == ["old"]
    assert threads
    assert threading.get_ident() not in threads


async def test_the_budget_of_an_expression_is_for_all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name costs a fifth of it."""
    now_s = itertools.count(step=FREE_S / 5)
    monkeypatch.setattr(expressions, "thread_time", lambda: next(now_s))
    assert await listed(".*") == ["old", "young", "empty"]
    assert await listed(".*", partitions=3) == ErrorCode.INVALID_REGULAR_EXPRESSION
