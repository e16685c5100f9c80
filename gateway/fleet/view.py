"""The fleet as request handlers see it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from coordinator.fleet.leadership import LeadershipState, PartitionRole
from coordinator.fleet.messages import NO_TRANSACTIONS, Address, Member
from coordinator.fleet.placement import PartitionKey
from coordinator.topics import DeletedTopic
from gateway.fleet.listener import FleetListener


class FleetView(Protocol):
    """See `Fleet` for these methods."""

    @property
    def node_id(self) -> int: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def incarnation(self) -> str: ...

    @property
    def address(self) -> Address: ...

    @property
    def epoch(self) -> int: ...

    @property
    def transaction_version(self) -> int: ...

    @property
    def members(self) -> Sequence[Member]: ...

    @property
    def state(self) -> LeadershipState: ...

    def key(self, topic: str, partition: int) -> PartitionKey: ...

    def leader(self, topic: str, partition: int) -> Member | None: ...

    def leads(self, topic: str, partition: int) -> bool: ...

    def role(self, topic: str, partition: int) -> PartitionRole: ...


class ClusterFleet(FleetView, Protocol):
    """The fleet for services of one cluster: topic names are the cluster's own."""

    def subscribe(self, listener: FleetListener) -> None: ...

    def is_member(self, member: Member) -> bool: ...

    async def ask_to_stop(self, topic: str) -> None: ...

    def topic_turn(self, topic: str) -> AbstractAsyncContextManager[None]: ...

    def announce_deletion(self, topic: DeletedTopic) -> None: ...


class LeadsNothing:
    """The view of a gateway that leads nothing and knows no other gateway: every handler answers its own error."""

    node_id = -1
    epoch = 0
    transaction_version = NO_TRANSACTIONS
    members: Sequence[Member] = ()
    state = LeadershipState.OUTSIDE

    def __init__(self, fleet: FleetView) -> None:
        self._fleet = fleet

    @property
    def cluster_id(self) -> str:
        return self._fleet.cluster_id

    @property
    def incarnation(self) -> str:
        return self._fleet.incarnation

    @property
    def address(self) -> Address:
        return self._fleet.address

    def key(self, topic: str, partition: int) -> PartitionKey:
        return self._fleet.key(topic, partition)

    def leader(self, topic: str, partition: int) -> Member | None:
        return None

    def leads(self, topic: str, partition: int) -> bool:
        return False

    def role(self, topic: str, partition: int) -> PartitionRole:
        return PartitionRole.ELSEWHERE
