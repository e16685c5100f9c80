"""The aborted transactions of a log in the order of their markers, in 32 bytes each.

There may be tens of thousands in each log, and any number in a log that only other clusters write to.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class AbortedTransaction(NamedTuple):
    """`last_offset` is the offset of the marker. After the marker, no transaction below `stable_offset` was open."""

    producer_id: int
    first_offset: int
    last_offset: int
    stable_offset: int


class AbortedList:
    """As columns of int64."""

    __slots__ = ("_columns", "_first_offsets", "_last_offsets", "_stable_offsets")

    def __init__(self) -> None:
        self._columns = tuple(array("q") for _ in AbortedTransaction._fields)
        _, self._first_offsets, self._last_offsets, self._stable_offsets = self._columns

    def __len__(self) -> int:
        return len(self._last_offsets)

    def append(self, aborted: AbortedTransaction) -> None:
        for column, value in zip(self._columns, aborted, strict=True):
            column.append(value)

    def prepend(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Add those that precede all others."""
        for column, values in zip(self._columns, zip(*aborted, strict=True), strict=False):
            column[:0] = array("q", values)

    def drop(self, count: int) -> None:
        """Remove the first ones."""
        for column in self._columns:
            del column[:count]

    def position(self, offset: int) -> int:
        """The number of those whose markers are below the offset."""
        return bisect_left(self._last_offsets, offset)

    def between(self, start: int, end: int) -> list[AbortedTransaction]:
        """Those at these positions."""
        return list(map(AbortedTransaction._make, zip(*(column[start:end] for column in self._columns), strict=True)))

    def __getitem__(self, position: int) -> AbortedTransaction:
        return AbortedTransaction._make(column[position] for column in self._columns)

    def with_records(self, fetch_offset: int, upper_offset: int) -> Iterator[AbortedTransaction]:
        """Those with a record from `fetch_offset` on and below `upper_offset`."""
        for number in range(self.position(fetch_offset), len(self)):
            if self._first_offsets[number] < upper_offset:
                yield self[number]
            if self._stable_offsets[number] >= upper_offset:  # later aborted ones began after the range
                return
