"""What Metadata tells of partitions, for all who ask while the fleet does not change: when it does, all clients ask."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from gateway.fan_out import Slices
from protocol.kafka.messages.topics import MetadataResponse

MAX_ROWS = 50_000
"""About 300 bytes each."""
CHUNK = 50
"""Rows that are made before others have their turn."""

MetadataPartition = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition
Make = Callable[[range], list[MetadataPartition]]
"""The rows of some partitions."""


class _Rows:
    """Those of the first partitions of a topic, as long as ``view`` holds."""

    def __init__(self, view: Hashable) -> None:
        self.view = view
        self.rows: list[MetadataPartition] = []
        self.kept = True
        """Others may find them, and they count."""


class PartitionRows:
    def __init__(self) -> None:
        self._known: dict[str, dict[Hashable, _Rows]] = {}
        self._count = 0

    async def get(
        self, topic: str, variant: Hashable, view: Callable[[], Hashable], partitions: int, make: Make, slices: Slices
    ) -> list[MetadataPartition]:
        """The rows of a topic's partitions, all of one ``view``. They are shared: nobody may change them.

        ``variant`` is whatever else of the request the rows depend on. Who asks meanwhile makes the rows with this
        caller, not all of them again.
        """
        found = self._current(topic, variant, view())
        while len(found.rows) < partitions:
            await slices.pause()
            found = self._current(topic, variant, view()) if found.view != view() else found
            self._make_some(found, partitions, make)
        return found.rows[:partitions]

    def forget(self, topic: str) -> None:
        """The topic is gone, or another one has its name now."""
        for rows in self._known.pop(topic, {}).values():
            self._drop(rows)

    def _current(self, topic: str, variant: Hashable, view: Hashable) -> _Rows:
        variants = self._known.setdefault(topic, {})
        found = variants.get(variant)
        if found is not None and found.view != view:
            self._drop(found)
            found = None
        if found is None:
            found = variants[variant] = _Rows(view)
        return found

    def _make_some(self, found: _Rows, partitions: int, make: Make) -> None:
        first = len(found.rows)
        found.rows += make(range(first, min(first + CHUNK, partitions)))
        if found.kept:
            self._count += len(found.rows) - first
        if self._count > MAX_ROWS:  # who is not done goes on with what it has
            for topic in [*self._known]:
                self.forget(topic)

    def _drop(self, rows: _Rows) -> None:
        rows.kept = False
        self._count -= len(rows.rows)
