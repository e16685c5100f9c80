"""The server-side assignors: every partition is assigned once, loads are even, few partitions move."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.group.consumer import range as range_assignor
from coordinator.group.consumer import uniform
from coordinator.group.consumer.assignment import Assignment, MemberSpec, TopicId, partitions_of
from coordinator.slices import last_of

T, U = b"t" * 16, b"u" * 16
TOPICS = [bytes([n]) * 16 for n in range(4)]


def spec(
    member_id: str, topics: Sequence[TopicId], owned: Assignment | None = None, instance: str | None = None
) -> MemberSpec:
    return MemberSpec(member_id, instance, frozenset(topics), owned or {})


@st.composite
def groups(draw: st.DrawFn, *, equal: bool = False) -> tuple[list[MemberSpec], dict[TopicId, int]]:
    """Members with subscriptions, and with owned partitions, some of which they must give up."""
    counts = {topic: draw(st.integers(1, 8)) for topic in TOPICS}
    same = draw(st.sets(st.sampled_from(TOPICS), min_size=1))
    free = [(topic, partition) for topic in TOPICS for partition in range(counts[topic] + 2)]
    members = []
    for number in range(draw(st.integers(1, 6))):
        owned = draw(st.lists(st.sampled_from(free), unique=True, max_size=8)) if free else []
        free = [partition for partition in free if partition not in owned]
        topics = same if equal else draw(st.sets(st.sampled_from(TOPICS)))
        assignment: dict[TopicId, set[int]] = {}
        for topic, partition in owned:
            assignment.setdefault(topic, set()).add(partition)
        members.append(spec(f"m{number}", sorted(topics), assignment))
    return members, counts


def check(members: Sequence[MemberSpec], counts: Mapping[TopicId, int], result: Mapping[str, Assignment]) -> None:
    assert set(result) == {member.member_id for member in members}
    given_out = [partition for assignment in result.values() for partition in partitions_of(assignment)]
    subscribed = frozenset[TopicId]().union(*(member.topics for member in members))
    assert sorted(given_out) == sorted((topic, n) for topic in subscribed for n in range(counts[topic]))
    for member in members:
        assert result[member.member_id].keys() <= member.topics
        assert all(result[member.member_id].values())


def assign_range(members: Sequence[MemberSpec], counts: Mapping[TopicId, int]) -> dict[str, Assignment]:
    return last_of(range_assignor.assign_range(members, counts))


def assign_uniform(members: Sequence[MemberSpec], counts: Mapping[TopicId, int]) -> dict[str, Assignment]:
    return last_of(uniform.assign_uniform(members, counts))


Assign = Callable[[Sequence[MemberSpec], Mapping[TopicId, int]], dict[str, Assignment]]


@pytest.mark.parametrize("assign", [assign_range, assign_uniform])
@given(group=groups())
def test_every_partition_goes_to_one_subscriber(
    assign: Assign, group: tuple[list[MemberSpec], dict[TopicId, int]]
) -> None:
    check(*group, assign(*group))


@given(groups(equal=True))
def test_uniform_is_even_among_equals_and_keeps_what_it_can(group: tuple[list[MemberSpec], dict[TopicId, int]]) -> None:
    members, counts = group
    result = assign_uniform(members, counts)
    loads = [sum(1 for _ in partitions_of(result[member.member_id])) for member in members]
    assert max(loads) - min(loads) <= 1
    for member, load in zip(members, loads, strict=True):
        valid = {(t, p) for t, p in partitions_of(member.owned) if t in member.topics and p < counts[t]}
        kept = valid & set(partitions_of(result[member.member_id]))
        assert len(kept) == min(len(valid), load)


@given(groups())
def test_uniform_loads_differ_by_at_most_one(
    group: tuple[list[MemberSpec], dict[TopicId, int]],
) -> None:
    members, counts = group
    result = assign_uniform(members, counts)
    load = {member_id: sum(1 for _ in partitions_of(assignment)) for member_id, assignment in result.items()}
    for rich in members:
        for poor in members:
            if load[rich.member_id] > load[poor.member_id] + 1:
                assert not result[rich.member_id].keys() & poor.topics


@given(groups())
def test_uniform_leaves_its_own_result_alone(group: tuple[list[MemberSpec], dict[TopicId, int]]) -> None:
    members, counts = group
    first = assign_uniform(members, counts)
    again = [spec(m.member_id, sorted(m.topics), first[m.member_id]) for m in members]
    assert assign_uniform(again, counts) == first


class CountedTopics(frozenset[TopicId]):
    """Counts how often an assignor asks whether a member may get a partition."""

    asked = 0

    def __contains__(self, topic_id: object) -> bool:
        CountedTopics.asked += 1
        return super().__contains__(topic_id)


def test_uniform_is_quick_while_a_topic_is_added_to_the_members_one_after_the_other() -> None:
    """The event loop waits for it: with 100 members it took minutes."""
    counts, loads = {T: 100, U: 300}, [0]
    members = [MemberSpec(f"m{number}", None, CountedTopics([T]), {}) for number in range(20)]
    for updated in range(len(members)):
        members[updated] = replace(members[updated], topics=CountedTopics([T, U]))
        CountedTopics.asked = 0
        result = assign_uniform(members, counts)
        assert CountedTopics.asked <= sum(counts.values())
        members = [replace(member, owned=result[member.member_id]) for member in members]
        loads = [sum(map(len, assignment.values())) for assignment in result.values()]
    assert set(loads) == {20}


def test_range_gives_runs_of_equal_partition_numbers() -> None:
    members = [spec("b", [T, U]), spec("a", [T, U])]
    assert assign_range(members, {T: 3, U: 3}) == {"a": {T: {0, 1}, U: {0, 1}}, "b": {T: {2}, U: {2}}}


def test_range_puts_static_members_first() -> None:
    members = [spec("a", [T]), spec("z", [T], instance="i2"), spec("y", [T], instance="i1")]
    assert assign_range(members, {T: 3}) == {"y": {T: {0}}, "z": {T: {1}}, "a": {T: {2}}}


def test_more_members_than_partitions() -> None:
    members = [spec(name, [T]) for name in "abc"]
    for assign in (assign_range, assign_uniform):
        assert sorted(len(assignment) for assignment in assign(members, {T: 1}).values()) == [0, 0, 1]
    assert assign_uniform([], {}) == assign_range([], {}) == {}


class Counted(str):
    """Counts how often members are compared or looked up."""

    __slots__ = ()
    used = 0

    def __hash__(self) -> int:
        Counted.used += 1
        return super().__hash__()

    __eq__ = str.__eq__


@pytest.mark.parametrize("assign", [assign_range, assign_uniform])
@pytest.mark.parametrize("differ", [False, True])
def test_the_work_grows_with_topics_and_members_and_not_with_their_product(assign: Assign, differ: bool) -> None:
    """The event loop waits for it: with 200 members and 20,000 topics it took a second."""
    topics = [number.to_bytes(16, "big") for number in range(300)]
    all_but_one = frozenset(topics[1:])
    every = frozenset(topics)
    members = [MemberSpec(Counted(f"m{number}"), None, every, {}) for number in range(100)]
    if differ:
        members[0] = replace(members[0], topics=all_but_one)
    Counted.used = 0
    result = assign(members, dict.fromkeys(topics, 1))
    assert Counted.used < 30 * (len(topics) + len(members)) < len(topics) * len(members)
    check(members, dict.fromkeys(topics, 1), result)
