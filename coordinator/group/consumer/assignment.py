"""Assignments of partitions to members of a consumer group (KIP-848)."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from coordinator.group.records.consumer_group import TopicPartitions

TopicId = bytes
TopicIdPartition = tuple[TopicId, int]
Assignment = Mapping[TopicId, AbstractSet[int]]
"""A topic in the map has at least one partition."""


CHANGE_SLICES = 5
"""A change of a large group is made in slices of some milliseconds: members wait for it, and a turn of the event loop
may take longer than a slice."""


class TopicInfo(NamedTuple):
    topic_id: TopicId
    partition_count: int


@dataclass(frozen=True)
class MemberSpec:
    """What an assignor knows about a member. `topics` exist; `owned` is the member's part of the last target."""

    member_id: str
    instance_id: str | None
    topics: frozenset[TopicId]
    owned: Assignment


Assignor = Callable[[Sequence[MemberSpec], Mapping[TopicId, int]], Generator[None, None, dict[str, Assignment]]]
"""(members, partition count of each topic) to each member's partitions. Each step is a slice of the work."""


def partitions_of(assignment: Assignment) -> Iterator[TopicIdPartition]:
    return ((topic_id, partition) for topic_id, partitions in assignment.items() for partition in partitions)


def to_assignment(partitions: Iterable[TopicIdPartition]) -> Assignment:
    assignment: dict[TopicId, set[int]] = {}
    for topic_id, partition in partitions:
        assignment.setdefault(topic_id, set()).add(partition)
    return assignment


def to_value(assignment: Assignment) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id, sorted(assignment[topic_id])) for topic_id in sorted(assignment)]


def from_value(value: Iterable[TopicPartitions]) -> Assignment:
    return to_assignment((topic.topic_id, partition) for topic in value for partition in topic.partitions)
