"""ListTransactions by a pattern: the expression is matched in a thread, never on the event loop."""

from __future__ import annotations

import itertools
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.topic_regex import Matches, matcher
from coordinator.transaction.messages import ListedTransaction, ListTransactionsResponse
from gateway.coordination import expressions
from gateway.coordination.expressions import FREE_S
from gateway.handlers.transactions import list_transactions
from protocol.kafka.errors import ErrorCode


async def listed(pattern: str | None, partitions: int = 1) -> Any:
    found = [ListedTransaction(name, 1, "Ongoing") for name in ("old", "young", "empty")]
    coordinator = SimpleNamespace(
        list_transactions=lambda asked, now_ms: ListTransactionsResponse(ErrorCode.NONE, (), found)
    )
    partition = SimpleNamespace(run=lambda ask: ask(coordinator, 0))
    request = SimpleNamespace(
        producer_id_filters=[], state_filters=[], duration_filter=-1, transactional_id_pattern=pattern
    )
    transactions = SimpleNamespace(partitions=[partition] * partitions, leads=lambda number: True)
    call: Any = SimpleNamespace(request=request, cluster=SimpleNamespace(transactions=transactions))
    response = await list_transactions.handle(call)
    return response.error_code or [row.transactional_id for row in response.transaction_states]


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
