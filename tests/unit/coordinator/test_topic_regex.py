"""Clients' regular expressions: what is refused, and what the worst ones cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import re2

from coordinator import topic_regex
from coordinator.topic_regex import (
    CACHED_VERDICTS,
    MAX_REGEX_BYTES,
    MAX_UNICODE_CLASSES,
    InvalidRegexError,
    matcher,
    matching,
    problem_of,
)

MAX_COMPILING_S = 0.06
"""Seen: 6 ms on an idle machine. Without the bounds it is 110 to 630 ms."""


@pytest.fixture(autouse=True)
def nothing_cached() -> Iterator[None]:
    topic_regex._verdict.cache_clear()
    topic_regex._compiled.cache_clear()
    yield
    topic_regex._verdict.cache_clear()
    topic_regex._compiled.cache_clear()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The expressions that RE2 has compiled, in order."""
    seen: list[str] = []
    compile_one: Callable[..., Any] = re2._Regexp

    def counted(regex: str, options: object) -> object:
        seen.append(regex)
        return compile_one(regex, options)

    monkeypatch.setattr(re2, "_Regexp", counted)
    return seen


def filled(unit: str, start: str = "") -> str:
    return start + unit * ((MAX_REGEX_BYTES - len(start.encode())) // len(unit.encode()))


CLASSES = r"\PL" * MAX_UNICODE_CLASSES


@pytest.mark.parametrize(
    "regex",
    [
        r"\pL{1000}", r"(?i)\pL{1000}", filled("[^a]", "(?i)" + CLASSES), filled("[À-ѐ]", "(?i)" + CLASSES),
        filled(r"\PL", "(?i)"), filled(r"[\pL\pN]{5}"), filled(r"\pL|"), filled("((a{30}){30}){1}"), filled(".{1000}"),
        filled("a{1000}"), filled("(|a)*"), filled("[!-\uffff]", "(?i)"), filled("(.*x.*)|"), "(" * 1000 + ")" * 1000,
        filled(r"[\pL\pN]{5}") * 16,
    ],
)  # fmt: skip
def test_no_expression_holds_the_interpreter_for_long(regex: str) -> None:
    costs = []
    for _ in range(3):
        topic_regex._verdict.cache_clear()
        topic_regex._compiled.cache_clear()
        start = time.thread_time()
        problem_of(regex)
        costs.append(time.thread_time() - start)
    assert min(costs) < MAX_COMPILING_S


def test_what_is_too_large_has_a_clear_reason() -> None:
    assert problem_of("a" * MAX_REGEX_BYTES) is None
    assert problem_of("a" * (MAX_REGEX_BYTES + 1)) == "it is longer than 2048 bytes"
    assert problem_of("ä" * MAX_REGEX_BYTES) == "it is longer than 2048 bytes"
    assert problem_of(r"\pZ" * MAX_UNICODE_CLASSES) is None
    assert problem_of(r"\pZ" * (MAX_UNICODE_CLASSES + 1)) == r"it has more than 16 Unicode classes such as \pL"
    assert "too large" in (problem_of(r"\pL{1000}") or "")
    with pytest.raises(InvalidRegexError, match="longer than"):
        matcher("a" * 32_000)


def test_hundreds_of_ordinary_names_are_one_expression() -> None:
    names = [f"orders-{number:03}" for number in range(180)]
    assert matching("|".join(names), [*names, "orders-180"]) == frozenset(names)


def test_groups_do_not_change_what_matches() -> None:
    assert matching("(t|u)(1|2)+", ["t1", "u212", "t3", "xt1"]) == {"t1", "u212"}


@pytest.mark.parametrize("regex", ["(", r"\pL{1000}", "orders-.*"])
def test_an_expression_is_compiled_once(regex: str, compiled: list[str]) -> None:
    for _ in range(3):
        problem_of(regex)
    assert compiled == [regex]


def test_valid_expressions_are_not_compiled_again_to_be_checked(compiled: list[str]) -> None:
    regexes = [f"a{number}" for number in range(CACHED_VERDICTS)]
    for _ in range(2):
        assert not any(map(problem_of, regexes))
    assert compiled == regexes


def test_what_is_too_long_is_not_remembered() -> None:
    problem_of("a" * 32_000)
    assert topic_regex._verdict.cache_info().currsize == 0


def test_re2_keeps_no_expression_of_its_own() -> None:
    before = re2._Regexp._make.cache_info().currsize
    for number in range(10):
        assert matching(f"only-{number}", [f"only-{number}"])
    assert re2._Regexp._make.cache_info().currsize == before
    assert topic_regex._compiled.cache_info().maxsize == topic_regex.CACHED_REGEXES
    assert topic_regex._compiled("only-0").options.max_mem == topic_regex.MAX_COMPILED_BYTES
