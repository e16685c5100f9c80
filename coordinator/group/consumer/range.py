"""The server-side range assignor: every subscriber of a topic gets one run of partitions.

Members with the same subscriptions get the same partition numbers of topics with equal counts, as joins need it.
Static members come first, in the order of their instance ids, so a restart moves nothing.
"""

from collections.abc import Generator, Mapping, Sequence
from heapq import merge
from itertools import islice

from coordinator.group.consumer.assignment import CHANGE_SLICES, Assignment, MemberSpec, TopicId
from coordinator.group.consumer.subscribers import subscribers_of
from coordinator.slices import SliceCounter


def assign_range(
    members: Sequence[MemberSpec], partition_counts: Mapping[TopicId, int]
) -> Generator[None, None, dict[str, Assignment]]:
    counter = SliceCounter(CHANGE_SLICES)
    ordered = sorted(members, key=_order)
    assigned: dict[str, dict[TopicId, set[int]]] = {member.member_id: {} for member in ordered}
    subscribers = subscribers_of(ordered)
    for topic_id, count in partition_counts.items():
        alike = [subscribers.members[number] for number in subscribers.of_topic.get(topic_id, ())]
        quota, extras = divmod(count, sum(map(len, alike)) or 1)
        start = 0
        # Without a quota, only the first ones get anything.
        for index, member in enumerate(islice(merge(*alike, key=_order), None if quota else extras)):
            end = start + quota + (index < extras)
            assigned[member.member_id][topic_id] = set(range(start, end))
            start = end
        if counter.is_full(1 + sum(map(len, alike)) + count):
            yield
    return dict(assigned)


def _order(member: MemberSpec) -> tuple[bool, str]:
    return member.instance_id is None, member.instance_id or member.member_id
