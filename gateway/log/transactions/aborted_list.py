"""The aborted transactions of a log in the order of their markers, in 32 bytes each. There may be tens of thousands."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple


class AbortedTransaction(NamedTuple):
    """`last_offset` is the offset of the marker. After the marker, no transaction below `stable_offset` was open."""

    producer_id: int
    first_offset: int
    last_offset: int
    stable_offset: int


WIDTH = len(AbortedTransaction._fields)
_FIRST, _LAST, _STABLE = (AbortedTransaction._fields.index(f"{name}_offset") for name in ("first", "last", "stable"))


class AbortedList:
    """Rows of int64, one after the other."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values = array("q")

    def __len__(self) -> int:
        return len(self._values) // WIDTH

    def __getitem__(self, position: int) -> AbortedTransaction:
        return AbortedTransaction._make(self._values[WIDTH * position : WIDTH * (position + 1)])

    def append(self, aborted: AbortedTransaction) -> None:
        self._values.extend(aborted)

    def prepend(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Add those that precede all others."""
        self._values[:0] = array("q", chain.from_iterable(aborted))

    def drop(self, count: int) -> None:
        """Remove the first ones."""
        del self._values[: WIDTH * count]

    def position(self, offset: int) -> int:
        """The number of those whose markers are below the offset."""
        return bisect_left(range(len(self)), offset, key=lambda number: self._values[WIDTH * number + _LAST])

    def between(self, start: int, end: int) -> list[AbortedTransaction]:
        """Those at these positions."""
        return [self[number] for number in range(start, end)]

    def with_records(self, fetch_offset: int, upper_offset: int) -> Iterator[AbortedTransaction]:
        """Those with a record from `fetch_offset` on and below `upper_offset`."""
        for number in range(self.position(fetch_offset), len(self)):
            if self._values[WIDTH * number + _FIRST] < upper_offset:
                yield self[number]
            if self._values[WIDTH * number + _STABLE] >= upper_offset:  # later aborted ones began after the range
                return


def in_order(aborted: Iterable[AbortedTransaction]) -> list[AbortedTransaction]:
    """Each once, in the order of their beginnings."""
    return sorted(by_beginning(aborted).values(), key=attrgetter("first_offset"))


def by_beginning(aborted: Iterable[AbortedTransaction]) -> dict[tuple[int, int], AbortedTransaction]:
    """By producer and first offset. Two checkpoints may have the same one, the later one in full."""
    return {(each.producer_id, each.first_offset): each for each in aborted}
