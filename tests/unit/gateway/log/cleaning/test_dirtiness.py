"""When a log is worth cleaning."""

from __future__ import annotations

import pytest

from gateway.log.cleaning.dirtiness import FIRST, dirty_bytes, is_dirty
from gateway.pulsar.admin.topics import InternalStats, Ledger
from gateway.pulsar.position import Position

LEDGERS = (Ledger(1, 10, 1_000), Ledger(2, 4, 400), Ledger(3, 0, 0), Ledger(4, 2, 50))


def stats(compacted_bytes: int, compacted_to: str = "1:9") -> InternalStats:
    cursors = {"__compaction": {"markDeletePosition": compacted_to}}
    return InternalStats(LEDGERS, Position(4, 1), 0, 16, cursors, Ledger(9, 1, compacted_bytes))


def test_how_much_is_dirty() -> None:
    assert dirty_bytes(LEDGERS, FIRST) == 1_450
    assert dirty_bytes(LEDGERS, Position(2, 1)) == 250
    assert dirty_bytes(LEDGERS, Position(4, 1)) == 0


@pytest.mark.parametrize(
    ("found", "cleaned", "threshold", "ratio", "dirty"),
    [
        (stats(400), FIRST, 450, 0.5, True),
        (stats(400), FIRST, 451, 0.5, False),
        (stats(450), FIRST, 450, 0.5, False),
        (stats(450), FIRST, 450, 0.49, True),
        (stats(-1, "-1:-1"), FIRST, 1_000, 0.99, True),
        (stats(0), Position(2, 3), 51, 0.0, False),
    ],
)
def test_enough_and_not_only_a_little_of_a_large_log(
    found: InternalStats, cleaned: Position, threshold: int, ratio: float, dirty: bool
) -> None:
    assert is_dirty(found, cleaned, threshold, ratio) is dirty
