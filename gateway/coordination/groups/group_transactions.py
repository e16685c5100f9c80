"""Open transactions in partitions of `__consumer_offsets`, for the search for transactions that no coordinator ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coordinator.group.messages import OpenTransaction
from coordinator.topics import TopicPartition
from gateway.coordination.group_partition import GroupPartition
from gateway.topics.topic_names import CONSUMER_OFFSETS


class GroupTransactions:
    """The transactions of one partition. A transaction begins at the order number of its first pending offset."""

    def __init__(self, partition: GroupPartition) -> None:
        self._partition = partition

    def opened(self) -> list[tuple[int, int, int]]:
        """(producer id, its epoch, where the transaction began); empty if this gateway does not lead the partition."""
        return [(each.producer_id, each.producer_epoch, each.first_order) for each in self._open()]

    def suspect_hanging(self, producer_id: int) -> None:
        self._partition.run(lambda coordinator, now_ms: coordinator.suspect_hanging(producer_id))

    def is_suspected(self, producer_id: int, first_order: int) -> bool:
        is_open = any((each.producer_id, each.first_order) == (producer_id, first_order) for each in self._open())
        return is_open and self._partition.run(lambda coordinator, now_ms: coordinator.is_suspected(producer_id))

    async def is_copied(self, first_order: int) -> bool:
        """This topic is not replicated between clusters."""
        return False

    def coordinator_epoch(self, producer_id: int) -> int:
        return max((each.coordinator_epoch for each in self._open() if each.producer_id == producer_id), default=-1)

    def _open(self) -> list[OpenTransaction]:
        return self._partition.run(lambda coordinator, now_ms: coordinator.open_transactions()) or []


def group_transactions(partitions: Sequence[GroupPartition]) -> Iterator[tuple[TopicPartition, GroupTransactions]]:
    for number, partition in enumerate(partitions):
        yield TopicPartition(CONSUMER_OFFSETS, number), GroupTransactions(partition)
