"""The leaders of partitions, groups and transactions as a gateway at a single address sees them."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.fleet.messages import Member
from gateway.requests.cluster import Cluster
from gateway.topics.topic_names import CONSUMER_OFFSETS, MAX_NAME_LENGTH, TRANSACTION_STATE

MAX_KNOWN_LEADERS = 100_000
"""With the longest names that topics may have; a client may name what is no topic, which is not remembered."""


class FleetLeaders:
    """The leaders as this gateway knows them. None is this gateway itself, or no leader."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[tuple[str, int], Member | None] = {}
        self._known_epoch = -1

    @property
    def epoch(self) -> int:
        return self._cluster.fleet.epoch

    @property
    def others(self) -> Sequence[Member]:
        return [member for member in self._cluster.fleet.members if member.node_id != self._cluster.node_id]

    @property
    def holds_lease(self) -> bool:
        """If not, this gateway may have been suspended: requests that clients have sent to it may be old."""
        return self._cluster.fleet.state.permissions.coordinates

    def of_partition(self, topic: str, partition: int) -> Member | None:
        epoch, key = self._cluster.fleet.epoch, (topic, partition)
        if epoch != self._known_epoch or len(self._known) > MAX_KNOWN_LEADERS:
            self._known.clear()
            self._known_epoch = epoch
        if key in self._known:
            return self._known[key]
        leader = self._cluster.fleet.leader(topic, partition)
        found = None if leader is None or leader.node_id == self._cluster.node_id else leader
        if len(topic) <= MAX_NAME_LENGTH and topic.isascii():
            self._known[key] = found
        return found

    def of_group(self, group_id: str) -> Member | None:
        partition = self._cluster.groups.partition_of(group_id)
        return None if partition is None else self.of_partition(CONSUMER_OFFSETS, partition)

    def of_transactional_id(self, transactional_id: str) -> Member | None:
        partition = self._cluster.transactions.partition_of(transactional_id)
        return None if partition is None else self.of_partition(TRANSACTION_STATE, partition)
