"""The events that the fleet reports."""

from __future__ import annotations

from coordinator.topics import DeletedTopic


class FleetListener:
    """Listeners are called in the order in which they subscribed."""

    def leaders_changed(self) -> None:
        """Partitions may have other leaders now."""

    async def release_partitions(self) -> None:
        """Stop all work for partitions that this gateway does not lead, and return when it has stopped. All listeners
        are called concurrently. Other gateways do not lead these partitions before that."""

    def lease_lost(self) -> None:
        """Another gateway may lead by now, or partitions were not released in time. Called again while this is so."""

    async def stop_topic(self, topic: str) -> None:
        """Another gateway is about to delete the topic, or to change the format of an empty one. Return when nothing of
        this gateway uses it any more."""

    def topic_turn_ended(self, topic: str) -> None:
        """A gateway changes the topic no more: it has deleted it, for instance, or could not."""

    def topics_deleted(self, topics: tuple[DeletedTopic, ...]) -> None:
        """A gateway has deleted these topics."""
