"""ListTransactions by a pattern: the expression is matched in a thread, never on the event loop."""

from __future__ import annotations

import threading
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.topic_regex import matching
from coordinator.transaction.messages import ListedTransaction, ListTransactionsResponse
from gateway.coordination import expressions
from gateway.handlers.transactions import list_transactions
from protocol.kafka.errors import ErrorCode


async def listed(pattern: str | None) -> Any:
    found = [ListedTransaction(name, 1, "Ongoing") for name in ("old", "young", "empty")]
    coordinator = SimpleNamespace(
        list_transactions=lambda asked, now_ms: ListTransactionsResponse(ErrorCode.NONE, (), found)
    )
    partition = SimpleNamespace(run=lambda ask: ask(coordinator, 0))
    request = SimpleNamespace(
        producer_id_filters=[], state_filters=[], duration_filter=-1, transactional_id_pattern=pattern
    )
    transactions = SimpleNamespace(partitions=[partition], leads=lambda number: True)
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

    def matched(regex: str, names: Collection[str]) -> frozenset[str]:
        threads.append(threading.get_ident())
        return matching(regex, names)

    monkeypatch.setattr(expressions, "matching", matched)
    assert await listed("o.*") == ["old"]
    assert threads
    assert threading.get_ident() not in threads
