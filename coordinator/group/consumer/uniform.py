"""The server-side uniform assignor: as even as the subscriptions allow, with few moves.

Members with equal subscriptions get the same number of partitions, plus or minus one. With different subscriptions, no
partition stays with a member that owns at least two more than another subscriber of the topic.

The event loop waits for an assignment, so the work grows with the subscriptions and the partitions, not with their
product.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence

from coordinator.group.consumer.assignment import (
    Assignment,
    MemberSpec,
    TopicId,
    TopicIdPartition,
    partitions_of,
    to_assignment,
)

MAX_ROUNDS = 20
"""Bounds the work for members with different subscriptions: each round looks at every topic. Seven are enough."""

_Owned = dict[str, list[TopicIdPartition]]


def assign_uniform(members: Sequence[MemberSpec], partition_counts: Mapping[TopicId, int]) -> dict[str, Assignment]:
    if not members:
        return {}
    owned = {member.member_id: _kept(member, partition_counts) for member in members}
    if all(member.topics == members[0].topics for member in members):
        _even_out_equals(owned, _free(owned, members[0].topics, partition_counts))
    else:
        owned = _by_subscription(owned, members, partition_counts)
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


class _Holdings:
    """The partitions that members hold, while they are given out and moved."""

    def __init__(self, owned: _Owned) -> None:
        self._owned = owned
        self.load = {member_id: len(partitions) for member_id, partitions in owned.items()}
        self._of_topic: dict[TopicId, dict[str, list[TopicIdPartition]]] = {}
        for member_id, partitions in owned.items():
            for partition in partitions:
                self._held(partition[0], member_id).append(partition)

    def _held(self, topic_id: TopicId, member_id: str) -> list[TopicIdPartition]:
        return self._of_topic.setdefault(topic_id, {}).setdefault(member_id, [])

    def holders(self, topic_id: TopicId) -> list[str]:
        return [member_id for member_id, held in self._of_topic.get(topic_id, {}).items() if held]

    def give(self, partition: TopicIdPartition, member_id: str) -> None:
        self._held(partition[0], member_id).append(partition)
        self.load[member_id] += 1

    def move(self, topic_id: TopicId, giver: str, taker: str) -> bool:
        """Move the partition that the giver got last. Returns whether it holds another one of the topic."""
        held = self._held(topic_id, giver)
        self.give(held.pop(), taker)
        self.load[giver] -= 1
        return bool(held)

    def result(self) -> _Owned:
        owned: _Owned = {member_id: [] for member_id in self._owned}
        for of_topic in self._of_topic.values():
            for member_id, held in of_topic.items():
                owned[member_id] += held
        return owned


def _by_subscription(
    owned: _Owned, members: Sequence[MemberSpec], partition_counts: Mapping[TopicId, int]
) -> _Owned:
    """Topics with few subscribers come first: their partitions have fewer places."""
    subscribers: dict[TopicId, list[str]] = {}
    for member in members:
        for topic_id in member.topics:
            subscribers.setdefault(topic_id, []).append(member.member_id)
    topics = sorted(subscribers, key=lambda topic_id: (len(subscribers[topic_id]), topic_id))
    holdings = _Holdings(owned)
    _give_to_subscribers(holdings, topics, subscribers, _free(owned, frozenset(topics), partition_counts))
    for _ in range(MAX_ROUNDS):
        moved = [topic_id for topic_id in topics if _level(topic_id, subscribers[topic_id], holdings)]
        if not moved:
            break
    return holdings.result()


def _give_to_subscribers(
    holdings: _Holdings, topics: Sequence[TopicId], subscribers: Mapping[TopicId, list[str]],
    partitions: Iterable[TopicIdPartition],
) -> None:  # fmt: skip
    """Each free partition goes to the subscriber that has the fewest."""
    free: dict[TopicId, list[TopicIdPartition]] = {}
    for partition in partitions:
        free.setdefault(partition[0], []).append(partition)
    for topic_id in topics:
        by_load = _heap((holdings.load[member_id], member_id) for member_id in subscribers[topic_id])
        for partition in free.get(topic_id, ()):
            load, member_id = by_load[0]
            holdings.give(partition, member_id)
            heapq.heapreplace(by_load, (load + 1, member_id))


def _level(topic_id: TopicId, subscribers: Sequence[str], holdings: _Holdings) -> bool:
    """Move the topic's partitions from the richest members to the poorest. Returns whether any were moved.

    Who takes never gives: the poorest has one more at most than the next poorest. So only givers can have less than
    `takers` says, and they stay as rich as the richest giver, or one poorer.
    """
    load = holdings.load
    givers = _heap((-load[member_id], member_id) for member_id in holdings.holders(topic_id))
    poorest = min((load[member_id] for member_id in subscribers), default=0)
    if not givers or -givers[0][0] < poorest + 2:
        return False
    takers = _heap((load[member_id], member_id) for member_id in subscribers)
    while givers and -givers[0][0] >= takers[0][0] + 2:
        giver, (least, taker) = givers[0][1], takers[0]
        if holdings.move(topic_id, giver, taker):
            heapq.heapreplace(givers, (-load[giver], giver))
        else:
            heapq.heappop(givers)
        heapq.heapreplace(takers, (least + 1, taker))
    return True


def _heap(items: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    heap = list(items)
    heapq.heapify(heap)
    return heap
