"""What the fleet reports."""

from __future__ import annotations

from coordinator.topics import DeletedTopic


class FleetListener:
    """Listeners are called in the order in which they subscribed."""

    def leaders_changed(self) -> None:
        """Partitions may have other leaders now."""

    async def release_partitions(self) -> None:
        """See to it that nothing is done any more for partitions that this gateway does not lead; return when that is
        so. All listeners are called side by side. Others do not lead these partitions before."""

    def lease_lost(self) -> None:
        """Another gateway may lead by now, or partitions were not released in time. Called again while it is so."""

    def topics_deleted(self, topics: tuple[DeletedTopic, ...]) -> None:
        """Some gateway has deleted these topics."""
