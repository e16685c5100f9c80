"""When a log is worth cleaning."""

from __future__ import annotations

import math

import pytest

from gateway.log.cleaning.dirtiness import MAX_ENDS, End, PastEnds, dirty_bytes, is_dirty
from gateway.pulsar.admin.topics import InternalStats, Ledger
from gateway.pulsar.position import Position

FIRST, COMPACTED, LAST = Position(-1, -1), Position(1, 9), Position(4, 1)
LEDGERS = (Ledger(1, 10, 1_000), Ledger(2, 4, 400), Ledger(3, 0, 0), Ledger(4, 2, 50))


def stats(compacted_bytes: int, compacted_to: str = "1:9") -> InternalStats:
    cursors = {"__compaction": {"markDeletePosition": compacted_to}}
    return InternalStats(LEDGERS, Position(4, 1), 0, 16, cursors, Ledger(9, 1, compacted_bytes))


def test_how_much_is_dirty() -> None:
    assert dirty_bytes(LEDGERS, FIRST) == 1_450
    assert dirty_bytes(LEDGERS, Position(2, 1)) == 250
    assert dirty_bytes(LEDGERS, Position(4, 1)) == 0


@pytest.mark.parametrize(
    ("found", "cleaned", "end", "threshold", "ratio", "dirty"),
    [
        (stats(400), COMPACTED, LAST, 450, 0.5, True),
        (stats(400), COMPACTED, LAST, 451, 0.5, False),
        (stats(450), COMPACTED, LAST, 450, 0.5, False),
        (stats(450), COMPACTED, LAST, 450, 0.49, True),
        (stats(-1, "-1:-1"), FIRST, LAST, 1_000, 0.99, True),
        (stats(0), Position(2, 3), LAST, 51, 0.0, False),
        (stats(0), COMPACTED, Position(2, 1), 200, 0.0, True),
        (stats(0), COMPACTED, Position(2, 1), 201, 0.0, False),
        # What Pulsar has compacted behind what is clean is not a part of what is clean.
        (stats(1_400, "4:1"), COMPACTED, LAST, 450, 0.32, True),
        (stats(1_400, "4:1"), COMPACTED, LAST, 450, 0.33, False),
    ],
)
def test_enough_and_not_only_a_little_of_a_large_log(
    found: InternalStats, cleaned: Position, end: Position, threshold: int, ratio: float, dirty: bool
) -> None:
    assert is_dirty(found, cleaned, end, threshold, ratio) is dirty


def ends(*found: End) -> PastEnds:
    past = PastEnds()
    for end in found:
        past.add(end)
    return past


def at(time_s: float) -> End:
    return End(time_s, Position(1, int(time_s)), int(time_s))


def test_what_a_log_had_when_it_was_first_seen_may_be_of_any_age() -> None:
    past = ends(at(100), at(110), at(120))
    assert past.newest(before_s=90, stable_offset=0) == at(100)._replace(at_s=-math.inf)
    past.learned(101)
    assert past.newest(before_s=100, stable_offset=200) is None
    assert past.newest(before_s=101, stable_offset=200) == at(100)._replace(at_s=101)
    assert past.newest(before_s=115, stable_offset=200) == at(110)


def test_what_is_undecided_waits() -> None:
    past = ends(*map(at, (100, 110, 120, 120.5)))
    past.learned(100)
    assert past.newest(before_s=200, stable_offset=119) == at(110)
    assert past.newest(before_s=200, stable_offset=109) is None
    assert past.newest(before_s=200, stable_offset=120) == at(120)


def test_few_ends_are_kept_and_the_last_one_is_there() -> None:
    past = PastEnds()
    for number in range(10 * MAX_ENDS):
        past.add(at(number))
        past.learned(0)
        assert past.newest(before_s=number, stable_offset=number) is not None
    past = ends(*map(at, range(10 * MAX_ENDS)))
    past.learned(0)
    found = []
    for number in range(10 * MAX_ENDS):
        end = past.newest(before_s=number, stable_offset=number)
        if end is not None and end not in found:
            found.append(end)
    assert MAX_ENDS // 2 <= len(found) <= MAX_ENDS
    assert found[-1] == at(10 * MAX_ENDS - 1)
