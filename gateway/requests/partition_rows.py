"""Partition rows of Metadata answers, shared by all clients while the fleet does not change.

After each change, all clients request them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from gateway.fan_out import Slices
from protocol.kafka.buffers import SharedItems
from protocol.kafka.messages.topics import MetadataResponse

MAX_ROWS = 50_000
"""Each row takes about 350 bytes."""
CHUNK = 50
"""Rows that are created before other tasks get their turn."""

MetadataPartition = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition
Make = Callable[[range], list[MetadataPartition]]
"""Creates the rows of some partitions."""


class _Rows:
    """The rows of the first partitions of a topic, valid as long as ``view`` is the same."""

    def __init__(self, view: Hashable) -> None:
        self.view = view
        self.rows: list[MetadataPartition] = []
        self.shared: SharedItems[MetadataPartition] = SharedItems(())
        """Those of the last answer: nearly always all of them."""
        self.kept = True
        """Other requests may find the rows, and they count towards MAX_ROWS."""


class PartitionRows:
    def __init__(self) -> None:
        self._known: dict[str, dict[Hashable, _Rows]] = {}
        self._count = 0

    async def get(
        self, topic: str, variant: Hashable, view: Callable[[], Hashable], partitions: int, make: Make, slices: Slices
    ) -> SharedItems[MetadataPartition]:
        """The rows of a topic's partitions, all of one ``view``.

        ``variant`` is everything else of the request that the rows depend on. Concurrent callers create the rows
        together: each row is created once.
        """
        found = self._current(topic, variant, view())
        while len(found.rows) < partitions:
            await slices.pause()
            found = self._current(topic, variant, view()) if found.view != view() else found
            self._make_some(found, partitions, make)
        if len(found.shared) != partitions:
            found.shared = SharedItems(found.rows[:partitions])
        return found.shared

    def forget(self, topic: str) -> None:
        """The topic was deleted, or another topic has its name now."""
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
        if self._count > MAX_ROWS:  # callers that are not done continue with the rows that they have
            for topic in [*self._known]:
                self.forget(topic)

    def _drop(self, rows: _Rows) -> None:
        rows.kept = False
        self._count -= len(rows.rows)
