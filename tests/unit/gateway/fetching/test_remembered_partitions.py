"""The number of partitions that connections remember, which has a bound for all of them together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gateway.fetching.remembered_partitions import RememberedPartitions


def test_those_forget_that_were_heard_of_longest_ago() -> None:
    forgot = list[str]()
    forget: dict[str, Callable[[], None]] = {name: partial(forgot.append, name) for name in "abcd"}
    remembered = RememberedPartitions(10)
    for name in "abc":
        remembered.keeps(forget[name], 3)
    remembered.keeps(forget["a"], 4)
    assert not forgot
    remembered.keeps(forget["d"], 3)
    assert forgot == ["b"]
    remembered.keeps(forget["c"], 0)  # it has gone
    remembered.keeps(forget["b"], 3)
    assert forgot == ["b"]
    remembered.keeps(forget["b"], 4)
    assert forgot == ["b", "a"]


def test_one_alone_may_remember_more() -> None:
    forgot = list[str]()
    remembered = RememberedPartitions(10)
    forget: dict[str, Callable[[], None]] = {name: partial(forgot.append, name) for name in "ab"}
    remembered.keeps(forget["a"], 50)
    assert not forgot
    remembered.keeps(forget["b"], 1)
    assert forgot == ["a"]
