"""The checker of transactions finds each violation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.traffic.history import Read
from tests.support.traffic.transaction_history import Outcome, Transaction, TransactionHistory, check, violations

COMMITTED, ABORTED, UNKNOWN = Outcome.COMMITTED, Outcome.ABORTED, Outcome.UNKNOWN
TRANSACTIONS = [
    Transaction("p", 0, COMMITTED, ((0, b"a"), (1, b"b")), ((0, 1),)),
    Transaction("p", 1, ABORTED, ((0, b"c"),), ((0, 2),)),
    Transaction("p", 2, UNKNOWN, ((0, b"d"), (1, b"e")), ((0, 3),)),
    Transaction("p", 3, UNKNOWN, ((0, b"f"),), ((0, 4),)),
    Transaction("q", 0, COMMITTED, ((0, b"x"),)),
]
COMMITTED_LOG = {0: [(0, b"a"), (4, b"d"), (6, b"x")], 1: [(0, b"b"), (2, b"e")]}
EVERYTHING = {0: [(0, b"a"), (2, b"c"), (4, b"d"), (6, b"x"), (8, b"f")], 1: [(0, b"b"), (2, b"e")]}
READS = [
    Read("one", 1, 0, 0, b"a"),
    Read("one", 1, 0, 4, b"d"),
    Read("one", 1, 1, 2, b"e"),
    Read("two", 1, 0, 4, b"d"),
    Read("two", 1, 0, 6, b"x"),
]
GOOD = TransactionHistory(TRANSACTIONS, COMMITTED_LOG, EVERYTHING, READS, {0: 3})


def broken(found: TransactionHistory) -> set[str]:
    return {rule for rule, texts in violations(found).items() if [*texts]}


def with_log(partition: int, *rows: tuple[int, bytes]) -> dict[int, list[tuple[int, bytes]]]:
    return {**COMMITTED_LOG, partition: [*rows]}


def test_a_history_without_violations() -> None:
    check(GOOD)


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        ({"aborted read"}, replace(GOOD, reads=[*READS, Read("three", 1, 0, 2, b"c")])),
        (
            {"aborted read"},
            replace(GOOD, committed=with_log(0, (0, b"a"), (2, b"c"), (4, b"d"), (6, b"x")), reads=READS[2:]),
        ),
        ({"torn"}, replace(GOOD, committed=with_log(1, (0, b"b")), reads=[])),
        ({"lost"}, replace(GOOD, committed=with_log(0, (0, b"a"), (4, b"d")), reads=[])),
        ({"lost", "torn"}, replace(GOOD, committed=with_log(1, (2, b"e")), reads=[])),
        (
            {"doubled", "not in the log"},
            replace(GOOD, committed=with_log(0, *COMMITTED_LOG[0], (9, b"x")), reads=[]),
        ),
        (
            {"order", "not in the log"},
            replace(GOOD, committed=with_log(0, (0, b"d"), (4, b"a"), (6, b"x")), reads=[]),
        ),
        ({"two values"}, replace(GOOD, reads=[*READS, Read("three", 1, 0, 6, b"y")])),
        ({"polls"}, replace(GOOD, reads=[*READS, READS[-1]])),
        ({"poll skip"}, replace(GOOD, reads=[*READS[:1], Read("one", 1, 0, 6, b"x")])),
        ({"offsets"}, replace(GOOD, source_offsets={0: 2})),
        ({"offsets"}, replace(GOOD, source_offsets={0: 4})),
    ],
)
def test_violations_are_found(rules: set[str], found: TransactionHistory) -> None:
    assert broken(found) == rules
    with pytest.raises(AssertionError):
        check(found)


def test_an_unknown_outcome_may_be_either() -> None:
    check(replace(GOOD, committed=with_log(0, *COMMITTED_LOG[0], (8, b"f")), source_offsets={0: 4}))
    nothing_of_it = {0: [(0, b"a"), (6, b"x")], 1: [(0, b"b")]}
    check(replace(GOOD, committed=nothing_of_it, reads=[], source_offsets={0: 1}))


def test_a_new_stint_begins_anywhere() -> None:
    check(replace(GOOD, reads=[READS[0], Read("one", 2, 0, 6, b"x")]))
