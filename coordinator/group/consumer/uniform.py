"""The server-side uniform assignor: as even as the subscriptions allow, with few moves.

Members with equal subscriptions get the same number of partitions, plus or minus one. With different subscriptions, no
partition stays with a member that owns at least two more than another subscriber of the topic.

The work grows with the subscriptions and the partitions, not with their product, and is done in slices.
"""

import heapq
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from coordinator.group.consumer.assignment import (
    CHANGE_SLICES,
    Assignment,
    MemberSpec,
    TopicId,
    TopicIdPartition,
    to_assignment,
)
from coordinator.group.consumer.subscribers import Subscribers, subscribers_of
from coordinator.slices import SliceCounter, Steps

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparison

MAX_ROUNDS = 20
"""Bounds the work for members with different subscriptions: each round looks at all of them. Seven are enough."""
PARTITION_UNITS = 3
"""To give a partition to a member."""

_Owned = dict[str, list[TopicIdPartition]]
_ByLoad = tuple[int, str]
"""A member, and how many partitions it has."""
Item = TypeVar("Item", bound="SupportsRichComparison")


def assign_uniform(
    members: Sequence[MemberSpec], partition_counts: Mapping[TopicId, int]
) -> Generator[None, None, dict[str, Assignment]]:
    if not members:
        return {}
    counter = SliceCounter(CHANGE_SLICES)
    owned: _Owned = {}
    for member in members:
        owned[member.member_id] = _kept(member, partition_counts)
        if counter.is_full(1 + len(owned[member.member_id])):
            yield
    subscribers = subscribers_of(members)
    yield
    free = yield from _free(owned, subscribers.of_topic, partition_counts, counter)
    if len(subscribers.members) == 1:
        _even_out_equals(owned, free)
        yield
    else:
        owned = yield from _by_subscription(owned, subscribers, free, counter)
    assigned: dict[str, Assignment] = {}
    for member_id, partitions in owned.items():
        assigned[member_id] = to_assignment(partitions)
        if counter.is_full(1 + len(partitions)):
            yield
    return assigned


def _kept(member: MemberSpec, partition_counts: Mapping[TopicId, int]) -> list[TopicIdPartition]:
    return [
        (topic_id, partition)
        for topic_id in sorted(member.owned)
        if topic_id in member.topics
        for partition in sorted(member.owned[topic_id])
        if partition < partition_counts.get(topic_id, 0)
    ]


def _free(
    owned: _Owned, topics: Iterable[TopicId], partition_counts: Mapping[TopicId, int], counter: SliceCounter
) -> Generator[None, None, list[TopicIdPartition]]:
    taken: set[TopicIdPartition] = set()
    for partitions in owned.values():
        taken.update(partitions)
        if counter.is_full(1 + len(partitions) // 10):
            yield
    free: list[TopicIdPartition] = []
    for topic_id in sorted(topics):
        every = [(topic_id, partition) for partition in range(partition_counts[topic_id])]
        free += [partition for partition in every if partition not in taken]
        if counter.is_full(1 + len(every)):
            yield
    return free


def _even_out_equals(owned: _Owned, free: list[TopicIdPartition]) -> None:
    """Every member gets the quota; the remainder goes to the members that own most, so they give up least."""
    quota, extras = divmod(len(free) + sum(map(len, owned.values())), len(owned))
    richest_first = sorted(owned, key=lambda member_id: -len(owned[member_id]))
    quotas = {member_id: quota + (rank < extras) for rank, member_id in enumerate(richest_first)}
    for member_id, partitions in owned.items():
        free += partitions[quotas[member_id] :]
        del partitions[quotas[member_id] :]
    start = 0
    for member_id, partitions in owned.items():
        end = start + quotas[member_id] - len(partitions)
        partitions.extend(free[start:end])
        start = end


class _Alike:
    """Members with the same subscription. The poorest one is found without a look at the others."""

    def __init__(self, member_ids: Iterable[str], load: Mapping[str, int]) -> None:
        self._load = load
        self._by_load = _heap((load[member_id], member_id) for member_id in member_ids)
        """Also with loads that members do not have any more."""

    def changed(self, member_id: str) -> None:
        heapq.heappush(self._by_load, (self._load[member_id], member_id))

    def poorest(self) -> _ByLoad:
        while self._load[self._by_load[0][1]] != self._by_load[0][0]:
            heapq.heappop(self._by_load)
        return self._by_load[0]


class _Loads:
    """How many partitions members have, while they are given out and moved."""

    def __init__(self, owned: _Owned, members: Sequence[Sequence[MemberSpec]]) -> None:
        self.of = {member_id: len(partitions) for member_id, partitions in owned.items()}
        self._alike = [_Alike([member.member_id for member in each], self.of) for each in members]
        self._alike_of = {
            member.member_id: alike for alike, each in zip(self._alike, members, strict=True) for member in each
        }

    def add(self, member_id: str, count: int) -> None:
        self.of[member_id] += count
        self._alike_of[member_id].changed(member_id)

    def poorest(self, subscription: int) -> _ByLoad:
        return self._alike[subscription].poorest()


@dataclass
class _Topics:
    """Topics with the same subscribers: their partitions may change places."""

    subscriptions: Sequence[int]
    """Those of the subscribers."""
    subscriber_count: int
    held: _Owned = field(default_factory=dict)
    free: list[TopicIdPartition] = field(default_factory=list)

    def give_free(self, loads: _Loads, counter: SliceCounter) -> Steps:
        """Each free partition goes to the subscriber that has the fewest."""
        takers = self._takers(loads)
        for partition in self.free:
            self._give(partition, takers, loads)
            if counter.is_full(PARTITION_UNITS):
                yield

    def level(self, loads: _Loads, counter: SliceCounter) -> Generator[None, None, bool]:
        """Move partitions from the richest members to the poorest. Returns whether any were moved.

        Who takes never gives: the poorest has one more at most than the next poorest. So only givers can have less than
        `takers` says, and they stay as rich as the richest giver, or one poorer.
        """
        givers = _heap((-loads.of[member_id], member_id) for member_id, held in self.held.items() if held)
        takers = self._takers(loads)
        is_moved = False
        while givers and -givers[0][0] >= takers[0][0][0] + 2:
            giver = givers[0][1]
            held = self.held[giver]
            self._give(held.pop(), takers, loads)
            loads.add(giver, -1)
            if held:
                heapq.heapreplace(givers, (-loads.of[giver], giver))
            else:
                heapq.heappop(givers)
            is_moved = True
            if counter.is_full(PARTITION_UNITS):
                yield
        return is_moved

    def _takers(self, loads: _Loads) -> list[tuple[_ByLoad, int]]:
        """The poorest member of each subscription."""
        return _heap((loads.poorest(each), each) for each in self.subscriptions)

    def _give(self, partition: TopicIdPartition, takers: list[tuple[_ByLoad, int]], loads: _Loads) -> None:
        """To the poorest, whose subscription has another poorest one then."""
        (_, member_id), subscription = takers[0]
        self.held.setdefault(member_id, []).append(partition)
        loads.add(member_id, 1)
        heapq.heapreplace(takers, (loads.poorest(subscription), subscription))


def _by_subscription(
    owned: _Owned, subscribers: Subscribers, free: Iterable[TopicIdPartition], counter: SliceCounter
) -> Generator[None, None, _Owned]:
    """Topics with few subscribers come first: their partitions have fewer places."""
    loads = _Loads(owned, subscribers.members)
    yield
    topics = yield from _topics_of(subscribers, owned, free, counter)
    for each in topics:
        yield from each.give_free(loads, counter)
        if counter.is_full(1 + len(each.subscriptions)):
            yield
    for _ in range(MAX_ROUNDS):
        is_moved = False
        for each in topics:
            is_moved |= yield from each.level(loads, counter)
            if counter.is_full(1 + len(each.subscriptions) + len(each.held)):
                yield
        if not is_moved:
            break
    result: _Owned = {member_id: [] for member_id in owned}
    for each in topics:
        for member_id, held in each.held.items():
            result[member_id] += held
        if counter.is_full(1 + len(each.held)):
            yield
    return result


def _topics_of(
    subscribers: Subscribers, owned: _Owned, free: Iterable[TopicIdPartition], counter: SliceCounter
) -> Generator[None, None, list[_Topics]]:
    alike: dict[tuple[int, ...], _Topics] = {}
    by_id: dict[TopicId, _Topics] = {}
    for topic_id, subscriptions in sorted(subscribers.of_topic.items()):
        count = sum(len(subscribers.members[each]) for each in subscriptions)
        by_id[topic_id] = alike.setdefault(tuple(subscriptions), _Topics(subscriptions, count))
        if counter.is_full(1 + len(subscriptions)):
            yield
    for member_id, partitions in owned.items():
        for partition in partitions:
            by_id[partition[0]].held.setdefault(member_id, []).append(partition)
        if counter.is_full(1 + len(partitions)):
            yield
    for partition in free:
        by_id[partition[0]].free.append(partition)
        if counter.is_full(1):
            yield
    return sorted(alike.values(), key=lambda each: each.subscriber_count)


def _heap(items: Iterable[Item]) -> list[Item]:
    heap = list(items)
    heapq.heapify(heap)
    return heap
