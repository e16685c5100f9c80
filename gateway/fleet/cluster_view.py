"""The fleet as seen by one of several clusters: its topics are placed by names that are unique among all clusters.

The fleet's own cluster uses the plain names, and needs no view. In the fleet's log, topic names also carry the
cluster's name: older gateways treat them as topics that they do not have. A partition may be placed on any member.
Therefore it has no leader while a member does not serve the cluster: an older gateway would treat the cluster's
clients as its own.
"""

from __future__ import annotations

import asyncio
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import structlog

from coordinator.fleet.leadership import LeadershipState, PartitionRole
from coordinator.fleet.messages import Address, Member
from coordinator.fleet.placement import PartitionKey
from coordinator.topics import DeletedTopic
from gateway.fleet.fleet import Fleet
from gateway.fleet.listener import FleetListener

log = structlog.get_logger()


class ClusterView(FleetListener):
    def __init__(self, fleet: Fleet, cluster: str) -> None:
        """`fleet` must have joined. `cluster` is `tenant/namespace`."""
        self._fleet = fleet
        self._cluster = cluster
        self._prefix = f"{cluster}/"
        self._listeners: list[FleetListener] = []
        self._members: list[Member] = []
        self._missing: list[int] = []
        """Members that do not serve the cluster."""
        self._update_members()
        fleet.subscribe(self)

    def close(self) -> None:
        """Call this when the cluster is closed."""
        self._fleet.unsubscribe(self)

    def _update_members(self) -> None:
        missing = [member.node_id for member in self._fleet.members if not member.serves(self._cluster)]
        self._members = [member for member in self._fleet.members if member.serves(self._cluster)]
        if missing and missing != self._missing:
            log.warning("a cluster has no leaders: not all gateways serve it", cluster=self._cluster, missing=missing)
        self._missing = missing

    # Identity and members

    @property
    def cluster_id(self) -> str:
        """The same for all gateways: derived from the fleet's id and the cluster's name."""
        derived = uuid.uuid5(uuid.NAMESPACE_URL, f"{self._fleet.cluster_id}/{self._cluster}")
        return urlsafe_b64encode(derived.bytes).decode().rstrip("=").replace("-", "0", 1)

    @property
    def node_id(self) -> int:
        return self._fleet.node_id

    @property
    def incarnation(self) -> str:
        return self._fleet.incarnation

    @property
    def address(self) -> Address:
        return self._fleet.address

    @property
    def epoch(self) -> int:
        return self._fleet.epoch

    @property
    def transaction_version(self) -> int:
        return self._fleet.transaction_version

    @property
    def members(self) -> Sequence[Member]:
        return self._members

    @property
    def state(self) -> LeadershipState:
        return self._fleet.state

    # Leadership

    def key(self, topic: str, partition: int) -> PartitionKey:
        return PartitionKey(self._prefix + topic, partition)

    def leader(self, topic: str, partition: int) -> Member | None:
        return None if self._missing else self._fleet.leader(self._prefix + topic, partition)

    def leads(self, topic: str, partition: int) -> bool:
        return not self._missing and self._fleet.leads(self._prefix + topic, partition)

    def role(self, topic: str, partition: int) -> PartitionRole:
        return PartitionRole.ELSEWHERE if self._missing else self._fleet.role(self._prefix + topic, partition)

    def is_member(self, member: Member) -> bool:
        return self._fleet.is_member(member)

    # Events

    def subscribe(self, listener: FleetListener) -> None:
        self._listeners.append(listener)

    async def ask_to_stop(self, topic: str) -> None:
        await self._fleet.ask_to_stop(self._prefix + topic)

    def topic_turn(self, topic: str) -> AbstractAsyncContextManager[None]:
        return self._fleet.topic_turn(self._prefix + topic)

    def announce_deletion(self, topic: DeletedTopic) -> None:
        self._fleet.announce_deletion(topic._replace(name=self._prefix + topic.name))

    def leaders_changed(self) -> None:
        self._update_members()
        for listener in self._listeners:
            listener.leaders_changed()

    async def release_partitions(self) -> None:
        await asyncio.gather(*(listener.release_partitions() for listener in self._listeners))

    def lease_lost(self) -> None:
        for listener in self._listeners:
            listener.lease_lost()

    async def stop_topic(self, topic: str) -> None:
        if topic.startswith(self._prefix):
            name = topic.removeprefix(self._prefix)
            await asyncio.gather(*(listener.stop_topic(name) for listener in self._listeners))

    def topic_turn_ended(self, topic: str) -> None:
        if topic.startswith(self._prefix):
            for listener in self._listeners:
                listener.topic_turn_ended(topic.removeprefix(self._prefix))

    def topics_deleted(self, topics: tuple[DeletedTopic, ...]) -> None:
        own = tuple(
            topic._replace(name=topic.name.removeprefix(self._prefix))
            for topic in topics
            if topic.name.startswith(self._prefix)
        )
        if own:
            for listener in self._listeners:
                listener.topics_deleted(own)
