"""What Metadata tells of partitions, for all who ask while the fleet does not change: when it does, all clients ask."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from gateway.requests.fan_out import Slices

MAX_ROWS = 50_000
"""About 500 bytes each."""
CHUNK = 50
"""Rows that are made before others have their turn."""

Make = Callable[[range], list[Any]]
"""The rows of some partitions."""


class _Rows:
    """Those of the first partitions of a topic, as long as ``view`` holds."""

    def __init__(self, view: Hashable) -> None:
        self.view = view
        self.rows: list[Any] = []


class PartitionRows:
    def __init__(self) -> None:
        self._known: dict[Hashable, _Rows] = {}
        self._count = 0

    async def get(
        self, key: Hashable, view: Callable[[], Hashable], partitions: int, make: Make, slices: Slices
    ) -> Sequence[Any]:
        """The rows of a topic's partitions, all of one ``view``. They are shared: nobody may change them.

        ``key`` is the topic, and whatever else of the request its rows depend on. Who asks meanwhile makes the rows
        with this caller, not all of them again.
        """
        found = self._current(key, view())
        while len(found.rows) < partitions:
            await slices.pause()
            found = self._current(key, view()) if found.view != view() else found
            self._make_some(found, partitions, make)
        return found.rows[:partitions]

    def _current(self, key: Hashable, view: Hashable) -> _Rows:
        found = self._known.get(key)
        if found is None or found.view != view:
            found = self._known[key] = _Rows(view)
        return found

    def _make_some(self, found: _Rows, partitions: int, make: Make) -> None:
        first = len(found.rows)
        found.rows += make(range(first, min(first + CHUNK, partitions)))
        self._count += len(found.rows) - first
        if self._count > MAX_ROWS:  # who is not done goes on with what it has
            self._known.clear()
            self._count = 0
