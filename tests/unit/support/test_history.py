"""The checker of histories finds each violation, and accepts what is allowed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.traffic.history import (
    STRICT,
    Allowed,
    Append,
    Commit,
    History,
    Lookup,
    Read,
    Share,
    Turn,
    Write,
    check,
    violations,
)

LOG = {0: [(0, b"a"), (1, b"b"), (2, b"c")]}
WRITES = [Write(0, 0, b"a", "p", 0), Write(0, 1, b"b", "p", 1), Write(0, 2, b"c", "p", 2)]
READS = [
    Read("one", 1, 0, 0, b"a", since=0.0),
    Read("one", 1, 0, 1, b"b", since=0.0),
    Read("two", 1, 0, 1, b"b", since=5.0),
    Read("two", 1, 0, 2, b"c", since=5.0),
]
COMMITS = [Commit(0, 1, 1.0, 2.0), Commit(0, 3, 6.0, 7.0)]
LOOKUPS = [Lookup(0, 1, 2.5, 3.0), Lookup(0, 3, 6.5, 6.6), Lookup(0, 3, 8.0, 9.0)]
SHARES = [Share("one", 1, (0, 1)), Share("two", 1, (2,)), Share("two", 2, (0, 1))]
TURNS = [Turn("x", "g", 1, 0.0, 1.0), Turn("y", "g", 2, 0.5, 3.0), Turn("x", "g", 1, 2.0, 4.0)]
"""The second call may have been handled after the third."""
APPENDS = [Append(0, "p1"), Append(0, "p1"), Append(1, "p1"), Append(0, "p2")]
GOOD = History(WRITES, LOG, READS, COMMITS, LOOKUPS, SHARES, TURNS, APPENDS)


def broken(history: History, allowed: Allowed = STRICT) -> set[str]:
    """The rules that are violated."""
    return {rule for rule, found in violations(history, allowed).items() if [*found]}


def test_a_history_without_violations() -> None:
    check(GOOD)


@pytest.mark.parametrize(
    ("rules", "history"),
    [
        ({"lost"}, replace(GOOD, logs={0: [(0, b"a"), (1, b"b"), (3, b"d")]}, reads=[])),
        ({"lost", "two values"}, replace(GOOD, logs={0: [(0, b"a"), (1, b"c"), (2, b"b")]}, writes=WRITES[1:2])),
        ({"doubled"}, replace(GOOD, logs={0: [*LOG[0], (3, b"a")]})),
        ({"two values"}, replace(GOOD, reads=[*READS, Read("one", 1, 0, 2, b"x")])),
        ({"two values"}, replace(GOOD, writes=[*WRITES, Write(0, 9, b"a"), Write(0, 9, b"b")], logs={})),
        ({"order"}, replace(GOOD, writes=[each._replace(number=2 - each.number) for each in WRITES])),
        ({"order"}, replace(GOOD, logs={0: [LOG[0][0], LOG[0][2], LOG[0][1]]})),
        ({"unread"}, replace(GOOD, reads=READS[:3])),
        ({"read again"}, replace(GOOD, reads=[*READS, Read("two", 2, 0, 2, b"c", since=8.0)])),
        ({"polls"}, replace(GOOD, reads=[*READS, READS[-1]])),
        ({"polls"}, replace(GOOD, reads=[*READS[:2], READS[0], *READS[2:]])),
        ({"commits"}, replace(GOOD, commits=[*COMMITS, Commit(0, 2, 7.5, 8.0)])),
        ({"commits"}, replace(GOOD, lookups=[Lookup(0, -1, 2.5, 3.0)])),
        ({"owners"}, replace(GOOD, shares=[*SHARES, Share("one", 2, (1,))])),
        ({"coordinators"}, replace(GOOD, turns=[*TURNS, Turn("y", "g", 1, 5.0, 6.0)])),
        ({"coordinators"}, replace(GOOD, turns=[*TURNS, Turn("x", "g", 1, 3.5, 6.0)])),
        ({"writers"}, replace(GOOD, appends=[*APPENDS, Append(0, "p1")])),
    ],
)  # fmt: skip
def test_violations_are_found(rules: set[str], history: History) -> None:
    assert broken(history) == rules
    with pytest.raises(AssertionError):
        check(history)


@pytest.mark.parametrize(
    ("allowed", "history"),
    [
        (Allowed(late_writes=True), replace(GOOD, logs={0: LOG[0][:2]})),
        (Allowed(copies=True), replace(GOOD, logs={0: [*LOG[0], (3, b"a"), (4, b"b")]})),
        (Allowed(other_offsets=True), replace(GOOD, logs={0: [(10, b"a"), (12, b"b"), (13, b"c")]}, reads=[])),
        (Allowed(unread=True), replace(GOOD, reads=READS[:1])),
        (Allowed(read_again=True), replace(GOOD, reads=[*READS, Read("two", 2, 0, 0, b"a", since=8.0)])),
    ],
)
def test_what_is_allowed(allowed: Allowed, history: History) -> None:
    assert broken(history)
    check(history, allowed)


def test_groups_and_gateways_are_distinguished() -> None:
    check(History(commits=[Commit(0, 5, 0.0, 1.0, "g"), Commit(0, 3, 2.0, 3.0, "h"), Commit(1, 2, 4.0, 5.0, "g")]))
    check(History(reads=[Read("one", 1, 0, 0, b"a", 2.0, "g")], commits=[Commit(0, 5, 0.0, 1.0, "h")]))
    check(History(turns=[Turn("x", "g", 1, 0.0, 1.0), Turn("y", "h", 1, 0.0, 1.0), Turn("x", "g", 2, 2.0, 3.0)]))


def test_a_gateway_that_goes_on_in_a_newer_epoch_outlives_nobody() -> None:
    check(History(turns=[Turn("x", "g", 1, 0.0, 1.0), Turn("x", "g", 2, 2.0, 3.0), Turn("x", "g", 2, 4.0, 5.0)]))


def test_each_violation_is_reported() -> None:
    with pytest.raises(AssertionError, match=r"b'b' \(partition 0, offset 1\) was acknowledged and is not in the log"):
        check(History(writes=WRITES, logs={0: [LOG[0][0], LOG[0][2]]}))
