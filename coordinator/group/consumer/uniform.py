"""The server-side uniform assignor: as even as the subscriptions allow, with as few moves as possible.

Members with equal subscriptions get the same number of partitions, plus or minus one. With different subscriptions, no
partition stays with a member that owns at least two more than another subscriber of the topic.
"""

import heapq
from collections import deque
from collections.abc import Mapping, Sequence

from coordinator.group.consumer.assignment import (
    Assignment,
    MemberSpec,
    TopicId,
    TopicIdPartition,
    partitions_of,
    to_assignment,
)

_Owned = dict[str, list[TopicIdPartition]]


def assign_uniform(members: Sequence[MemberSpec], partition_counts: Mapping[TopicId, int]) -> dict[str, Assignment]:
    if not members:
        return {}
    owned = {member.member_id: _kept(member, partition_counts) for member in members}
    if all(member.topics == members[0].topics for member in members):
        _even_out_equals(owned, _free(owned, members[0].topics, partition_counts))
    else:
        _give_to_subscribers(owned, members, partition_counts)
        _move_to_poorer(owned, members)
    return {member_id: to_assignment(partitions) for member_id, partitions in owned.items()}


def _kept(member: MemberSpec, partition_counts: Mapping[TopicId, int]) -> list[TopicIdPartition]:
    return [
        (topic_id, partition)
        for topic_id, partition in sorted(partitions_of(member.owned))
        if topic_id in member.topics and partition < partition_counts.get(topic_id, 0)
    ]


def _free(owned: _Owned, topics: frozenset[TopicId], partition_counts: Mapping[TopicId, int]) -> list[TopicIdPartition]:
    taken = {partition for partitions in owned.values() for partition in partitions}
    every = ((topic_id, partition) for topic_id in sorted(topics) for partition in range(partition_counts[topic_id]))
    return [partition for partition in every if partition not in taken]


def _even_out_equals(owned: _Owned, free: list[TopicIdPartition]) -> None:
    """Every member gets the quota; the remainder goes to the members that own most, so they give up least."""
    quota, extras = divmod(len(free) + sum(map(len, owned.values())), len(owned))
    richest_first = sorted(owned, key=lambda member_id: -len(owned[member_id]))
    quotas = {member_id: quota + (rank < extras) for rank, member_id in enumerate(richest_first)}
    for member_id, partitions in owned.items():
        free += partitions[quotas[member_id] :]
        del partitions[quotas[member_id] :]
    for member_id, partitions in owned.items():
        missing = quotas[member_id] - len(partitions)
        partitions.extend(free[:missing])
        del free[:missing]


def _give_to_subscribers(owned: _Owned, members: Sequence[MemberSpec], partition_counts: Mapping[TopicId, int]) -> None:
    """Free partitions go to the subscriber that has the fewest; topics with few subscribers are assigned first."""
    subscribers: dict[TopicId, list[str]] = {}
    for member in members:
        for topic_id in member.topics:
            subscribers.setdefault(topic_id, []).append(member.member_id)
    free: dict[TopicId, list[TopicIdPartition]] = {}
    for partition in _free(owned, frozenset(subscribers), partition_counts):
        free.setdefault(partition[0], []).append(partition)
    for topic_id in sorted(free, key=lambda topic_id: (len(subscribers[topic_id]), topic_id)):
        by_load = [(len(owned[member_id]), member_id) for member_id in subscribers[topic_id]]
        heapq.heapify(by_load)
        for partition in free[topic_id]:
            load, member_id = by_load[0]
            owned[member_id].append(partition)
            heapq.heapreplace(by_load, (load + 1, member_id))


def _move_to_poorer(owned: _Owned, members: Sequence[MemberSpec]) -> None:
    """Each move makes the loads more equal (the sum of their squares falls), so this ends."""
    topics = {member.member_id: member.topics for member in members}
    rich = deque(sorted(owned, key=lambda member_id: -len(owned[member_id])))
    while rich:
        giver = rich.popleft()
        move = _better_place(giver, owned, topics)
        if move is not None:
            partition, taker = move
            owned[giver].remove(partition)
            owned[taker].append(partition)
            rich.extend(member_id for member_id in (giver, taker) if member_id not in rich)
            # Members without a poorer member to give to may have one now.
            rich.extend(m for m in owned if m not in rich and len(owned[m]) > len(owned[giver]) + 1)


def _better_place(
    giver: str, owned: _Owned, topics: Mapping[str, frozenset[TopicId]]
) -> tuple[TopicIdPartition, str] | None:
    poorer = sorted((m for m in owned if len(owned[m]) + 1 < len(owned[giver])), key=lambda m: len(owned[m]))
    for taker in poorer:
        for partition in reversed(owned[giver]):
            if partition[0] in topics[taker]:
                return partition, taker
    return None
