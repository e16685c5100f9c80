"""Answers to requests that name many things: one after the other, in slices between which other clients are served.

A request may name the same thing hundreds of thousands of times. Its answer is made once, and repeated a few times;
after that the thing is refused. Otherwise, a request of some kilobytes would have a response of gigabytes. Rows that
may be large have a bound in bytes as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gateway.fan_out import Slices, fan_out, sliced

MAX_TIMES = 10
"""As often as this, the answer is given again. Kafka has no such limit; its clients name things once."""
MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""The limit for all rows of an answer that may be large. A client that reads slowly may make the gateway hold them."""

Name = TypeVar("Name", bound=Hashable)
Row = TypeVar("Row")


@dataclass(frozen=True)
class LargeRows(Generic[Name, Row]):
    """How an answer with large rows is bounded."""

    bytes_of: Callable[[Row], int]
    """About the size of a row in the answer."""
    postpone: Callable[[Name], Row]
    """For what has no room beside the others: a row with which clients ask for it again, without those."""
    too_large: Callable[[Name], Row]
    """For what has no room even alone."""


async def answer_each(
    names: Sequence[Name],
    answer: Callable[[Name], Row],
    refuse: Callable[[Name], Row],
    large: LargeRows[Name, Row] | None = None,
) -> list[Row]:
    """A row for each name. `refuse` makes the rows of names that are named too often."""
    slices, times = Slices(), Counter[Name]()
    answers = _Answers(answer, large)
    refusals: dict[Name, Row] = {}
    rows = []
    for name in names:
        await slices.pause()
        times[name] += 1
        row = answers.row(name) if times[name] <= MAX_TIMES else None
        if row is None:
            if name not in refusals:
                refusals[name] = refuse(name)
            row = refusals[name]
        rows.append(row)
    return rows


class _Answers(Generic[Name, Row]):
    """Makes each answer once, as long as there is room."""

    def __init__(self, answer: Callable[[Name], Row], large: LargeRows[Name, Row] | None) -> None:
        self._answer = answer
        self._large = large
        self._left_bytes = MAX_ANSWER_BYTES
        self._is_full = False
        self._made: dict[Name, tuple[Row, int]] = {}

    def row(self, name: Name) -> Row | None:
        """None if it was given before, and there is no room to repeat it."""
        if name in self._made:
            row, size_bytes = self._made[name]
            return row if self._take(size_bytes) else None
        row, size_bytes = self._new(name)
        self._made[name] = row, size_bytes
        return row

    def _new(self, name: Name) -> tuple[Row, int]:
        """A row, and its size. When one had no room, the next ones are not even looked at."""
        if self._large is None:
            return self._answer(name), 0
        if self._is_full:
            return self._large.postpone(name), 0
        row = self._answer(name)
        size_bytes = self._large.bytes_of(row)
        if size_bytes > MAX_ANSWER_BYTES:
            return self._large.too_large(name), 0
        if self._take(size_bytes):
            return row, size_bytes
        self._is_full = True
        return self._large.postpone(name), 0

    def _take(self, size_bytes: int) -> bool:
        if size_bytes > self._left_bytes:
            return False
        self._left_bytes -= size_bytes
        return True


async def look_up_each(
    names: Sequence[Name], answer: Callable[[Name], Awaitable[Row]], refuse: Callable[[Name], Row]
) -> list[Row]:
    """As `answer_each`, for answers that have to be waited for."""
    distinct = await distinct_of(names)
    answers = await fan_out(answer, distinct)
    by_name = {name: row async for name, row in sliced(zip(distinct, answers, strict=True))}
    return await answer_each(names, by_name.__getitem__, refuse)


async def distinct_of(names: Iterable[Name]) -> list[Name]:
    """Each name once, in their order."""
    return list({name: None async for name in sliced(names)})


async def times_of(names: Iterable[Name]) -> Mapping[Name, int]:
    """How often each name is there."""
    times: dict[Name, int] = {}
    async for name in sliced(names):
        times[name] = times.get(name, 0) + 1
    return times
