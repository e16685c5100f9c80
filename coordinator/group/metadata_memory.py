"""The memory for what members send when they join, and leaders when they assign. It has a limit over all groups of a
coordinator."""

from collections.abc import Mapping

from coordinator.group.group import Group

COUNT_AGAIN_MS = 1_000
"""There may be very many groups: they are not counted more often. Until then, no member may send more."""


class MetadataMemory:
    """Keeps an upper bound. Memory of members that have left is subtracted when the limit is reached."""

    def __init__(self, limit_bytes: int, groups: Mapping[str, Group]) -> None:
        self._limit_bytes = limit_bytes
        self._groups = groups
        self._at_most_bytes = limit_bytes  # not counted yet
        self._counted_ms: int | None = None

    def admits(self, growth_bytes: int, now_ms: int) -> bool:
        """Whether members may send so much more than before."""
        if growth_bytes <= 0:
            return True
        is_old = self._counted_ms is None or now_ms - self._counted_ms >= COUNT_AGAIN_MS
        if self._at_most_bytes + growth_bytes > self._limit_bytes and is_old:
            self._at_most_bytes = sum(group.metadata_bytes for group in self._groups.values())
            self._counted_ms = now_ms
        return self._at_most_bytes + growth_bytes <= self._limit_bytes

    def grew(self, growth_bytes: int) -> None:
        """Members that were admitted have sent so much more. Not all of them stay: some only get an id, or an error."""
        self._at_most_bytes += growth_bytes
