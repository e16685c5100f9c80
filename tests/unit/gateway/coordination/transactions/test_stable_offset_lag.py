"""The metric of the lag counts what open transactions hold back in the logs that this gateway leads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.coordination.transactions.stable_offset_lag import last_stable_offset_lag
from gateway.log.registry import LogRegistry
from gateway.log.transactions.state import OpenTransaction
from tests.unit.gateway.coordination.transactions.fake_fleet import FakeFleet

LED, ELSEWHERE = 0, 1
"""Partitions of the fake fleet."""


def opened(stable: int, end: int, *, loaded: bool = True) -> Any:
    transactions = SimpleNamespace(
        open={7: OpenTransaction(0, stable)} if stable < end else {}, loaded=loaded, last_stable_offset=stable
    )
    return SimpleNamespace(end_offset=end, transactions=transactions)


@pytest.mark.parametrize(
    ("logs", "lag"),
    [
        ([], 0),
        ([(LED, opened(9, 9))], 0),
        ([(LED, opened(5, 9)), (LED, opened(1, 20)), (LED, opened(18, 40_000, loaded=False))], 19),
        ([(LED, opened(5, 9)), (ELSEWHERE, opened(1, 20))], 4),
    ],
    ids=["no log", "none open", "the largest that is known", "led elsewhere"],
)
def test_the_largest_lag(logs: list[tuple[int, Any]], lag: int) -> None:
    registry = SimpleNamespace(all_open=lambda: [(("t", partition), log) for partition, log in logs])
    assert last_stable_offset_lag(cast(LogRegistry, registry), FakeFleet()) == lag
