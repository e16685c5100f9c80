"""Which member of a consumer group holds a partition: no other one may read it yet."""

from dataclasses import dataclass, field

from coordinator.group.consumer.assignment import TopicIdPartition
from coordinator.group.consumer.member import ConsumerMember


@dataclass
class Holders:
    _by_partition: dict[TopicIdPartition, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._by_partition)

    def hold(self, member: ConsumerMember) -> None:
        self._by_partition.update(dict.fromkeys(member.held(), member.member_id))

    def release(self, member: ConsumerMember) -> None:
        for partition in member.held():
            if self._by_partition.get(partition) == member.member_id:
                del self._by_partition[partition]

    def is_taken(self, partition: TopicIdPartition) -> bool:
        return partition in self._by_partition
