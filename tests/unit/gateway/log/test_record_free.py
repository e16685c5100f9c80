"""The known ranges of a log without records."""

from __future__ import annotations

from gateway.log.record_free import MAX_RANGES, RecordFree


def test_a_range_grows_and_never_shrinks() -> None:
    ranges = RecordFree()
    assert ranges.end_of(5) == 5
    for end in (10, 30, 20):
        ranges.learn(5, end)
    assert (ranges.end_of(5), ranges.end_of(6)) == (30, 6)


def test_those_learned_last_are_kept() -> None:
    ranges = RecordFree()
    for offset in range(MAX_RANGES):
        ranges.learn(10 * offset, 10 * offset + 5)
    ranges.learn(0, 7)
    ranges.learn(10_000, 10_005)
    assert [ranges.end_of(offset) for offset in (0, 10, 20, 10_000)] == [7, 10, 25, 10_005]
