"""The server-side range assignor: every subscriber of a topic gets one run of partitions.

Members with the same subscriptions get the same partition numbers of topics with equal counts, as joins need it.
Static members come first, in the order of their instance ids, so a restart moves nothing.
"""

from collections.abc import Mapping, Sequence

from coordinator.group.consumer.assignment import Assignment, MemberSpec, TopicId


def assign_range(members: Sequence[MemberSpec], partition_counts: Mapping[TopicId, int]) -> dict[str, Assignment]:
    ordered = sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or m.member_id))
    assigned: dict[str, dict[TopicId, set[int]]] = {member.member_id: {} for member in ordered}
    for topic_id, count in partition_counts.items():
        subscribers = [member.member_id for member in ordered if topic_id in member.topics]
        start = 0
        for index, member_id in enumerate(subscribers):
            quota, extras = divmod(count, len(subscribers))
            end = start + quota + (index < extras)
            if start < end:
                assigned[member_id][topic_id] = set(range(start, end))
            start = end
    return dict(assigned)
