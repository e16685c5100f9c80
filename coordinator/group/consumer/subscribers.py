"""The subscribers of topics, as assignors need them: members with the same subscription are kept together.

A group may have a thousand members, and a subscription tens of thousands of topics: work for each topic and each member
would take seconds. The different subscriptions of a group are few, or short (`validation.MAX_NAMES_OF_GROUP`).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from coordinator.group.consumer.assignment import MemberSpec, TopicId


class Subscribers(NamedTuple):
    members: Sequence[Sequence[MemberSpec]]
    """Those of each subscription, in the order of the members."""
    of_topic: dict[TopicId, list[int]]
    """By topic: the subscriptions that have it."""


def subscribers_of(members: Iterable[MemberSpec]) -> Subscribers:
    by_topics: dict[frozenset[TopicId], list[MemberSpec]] = {}
    for member in members:
        by_topics.setdefault(member.topics, []).append(member)
    of_topic: dict[TopicId, list[int]] = {}
    for number, topics in enumerate(by_topics):
        for topic_id in topics:
            of_topic.setdefault(topic_id, []).append(number)
    return Subscribers([*by_topics.values()], of_topic)
