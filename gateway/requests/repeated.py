"""Answers to requests that name many things: one after the other, in slices between which other clients are served.

A request may name the same thing hundreds of thousands of times. Its answer is made once, and repeated a few times;
after that the thing is refused. Otherwise, a request of some kilobytes would have a response of gigabytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from gateway.fan_out import Slices, fan_out, sliced

MAX_TIMES = 10
"""As often as this, the answer is given again. Kafka has no such limit; its clients name things once."""

Name = TypeVar("Name", bound=Hashable)
Row = TypeVar("Row")


async def answer_each(
    names: Sequence[Name], answer: Callable[[Name], Row], refuse: Callable[[Name], Row]
) -> list[Row]:
    """A row for each name. `refuse` makes the rows of names that are named too often."""
    slices, times = Slices(), Counter[Name]()
    answers: dict[Name, Row] = {}
    refusals: dict[Name, Row] = {}
    rows = []
    for name in names:
        await slices.pause()
        times[name] += 1
        made, make = (answers, answer) if times[name] <= MAX_TIMES else (refusals, refuse)
        if name not in made:
            made[name] = make(name)
        rows.append(made[name])
    return rows


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
