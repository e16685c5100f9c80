"""The handwritten formats of subscriptions and assignments are equal to declared ones."""

import contextlib
from typing import Any

import pytest
from construct import Construct, ConstructError, Int16sb, Int32sb, Struct
from hypothesis import given
from hypothesis import strategies as st

from coordinator.group import subscription
from coordinator.group.records.fields import STRING, Lengthed, array
from coordinator.group.subscription import (
    MalformedSubscriptionError,
    read_assignment,
    read_consumers,
    read_subscription,
    subscribed_topics,
    topics_of,
    write_assignment,
)

USER_DATA = Lengthed(Int32sb, 0, text=False, nullable=True)
PARTITIONS = array(Struct(topic=STRING, partitions=array(Int32sb)))
HEAD: dict[str, Construct] = {"version": Int16sb, "topics": array(STRING), "user_data": USER_DATA}
SUBSCRIPTION, WITH_OWNED = Struct(**HEAD), Struct(**HEAD, owned=PARTITIONS)
ASSIGNMENT = Struct(version=Int16sb, assigned=PARTITIONS, user_data=USER_DATA)

texts = st.text(max_size=8)
user_data = st.none() | st.binary(max_size=8)
by_topic = st.dictionaries(texts, st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3), max_size=3)
versions = st.integers(-1, 4)


def rows(partitions: dict[str, list[int]]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partitions": numbers} for topic, numbers in partitions.items()]


@given(versions, st.lists(texts, max_size=4), user_data, by_topic, st.data())
def test_subscriptions(
    version: int, topics: list[str], data: bytes | None, owned: dict[str, list[int]], draw: st.DataObject
) -> None:
    fields = {"version": version, "topics": topics, "user_data": data}
    encoded = WITH_OWNED.build(fields | {"owned": rows(owned)})
    found = read_subscription(encoded)
    assert found == (version, frozenset(topics), owned if version >= 1 else {})
    broken = damaged(encoded, draw)
    expected: Any = None
    with contextlib.suppress(ConstructError, UnicodeDecodeError):
        expected = frozenset(SUBSCRIPTION.parse(broken).topics)
    assert subscribed_topics([broken]) == expected
    expected = found = None  # type: ignore[assignment]
    with contextlib.suppress(ConstructError, UnicodeDecodeError):
        head = SUBSCRIPTION.parse(broken)
        of_member = WITH_OWNED.parse(broken).owned if head.version >= 1 else []
        partitions = merged(of_member)
        expected = (head.version, frozenset(head.topics), partitions)
    with contextlib.suppress(MalformedSubscriptionError):
        found = read_subscription(broken)
    assert found == expected


@given(versions, by_topic, user_data, st.data())
def test_assignments(
    version: int, assigned: dict[str, list[int]], data: bytes | None, draw: st.DataObject
) -> None:
    encoded = ASSIGNMENT.build({"version": version, "assigned": rows(assigned), "user_data": data})
    assert read_assignment(encoded) == assigned
    ordered = {topic: sorted(assigned[topic]) for topic in sorted(assigned)}
    expected = ASSIGNMENT.build({"version": version, "assigned": rows(ordered), "user_data": None})
    assert write_assignment(version, assigned) == expected
    broken = damaged(encoded, draw)
    parsed = found = None
    with contextlib.suppress(ConstructError, UnicodeDecodeError):
        parsed = merged(ASSIGNMENT.parse(broken).assigned)
    with contextlib.suppress(MalformedSubscriptionError):
        found = read_assignment(broken)
    assert found == parsed


def merged(parsed: Any) -> dict[str, list[int]]:
    """A topic that is there twice has the partitions of both."""
    by_topic: dict[str, list[int]] = {}
    for each in parsed:
        by_topic.setdefault(each.topic, []).extend(each.partitions)
    return by_topic


def damaged(encoded: bytes, draw: st.DataObject) -> bytes:
    """Cut off, or with a byte changed. Not empty: that is no assignment at all."""
    broken = bytearray(encoded[: draw.draw(st.integers(1, len(encoded)))])
    broken[draw.draw(st.integers(0, len(broken) - 1))] = draw.draw(st.integers(0, 255))
    return bytes(broken)


def test_metadata_that_takes_long_to_read_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = SUBSCRIPTION.build({"version": 0, "topics": ["t"], "user_data": None})
    assert subscribed_topics([encoded]) == frozenset({"t"})
    monkeypatch.setattr(subscription, "MAX_BYTES", len(encoded) - 1)
    assert subscribed_topics([encoded]) is None
    with pytest.raises(MalformedSubscriptionError):
        read_subscription(encoded)


@given(st.lists(st.tuples(st.sampled_from([["a"], ["a", "b"], ["ab"], []]), user_data), max_size=5))
def test_the_union_of_the_members_topics(members: list[tuple[list[str], bytes | None]]) -> None:
    """Topics that several members name alike are read once."""
    encoded = [SUBSCRIPTION.build({"version": 0, "topics": topics, "user_data": data}) for topics, data in members]
    assert subscribed_topics(encoded) == frozenset(name for topics, _ in members for name in topics)


def test_only_so_many_topics_of_a_group_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "MAX_TOPICS", 4)
    members = [
        SUBSCRIPTION.build({"version": 0, "topics": topics, "user_data": None}) for topics in (["a", "b"], ["c", "d"])
    ]
    assert subscribed_topics([*members[:1] * 9, members[1]]) == frozenset("abcd")
    assert subscribed_topics([*members, members[0]]) is None


def test_only_so_many_topics_of_assignments_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all members of a group together. None is read if they are too many."""
    monkeypatch.setattr(subscription, "MAX_TOPICS", 4)
    metadata = SUBSCRIPTION.build({"version": 0, "topics": ["a"], "user_data": None})

    def assignment(*topics: str) -> bytes:
        return write_assignment(0, {topic: [0] for topic in topics})

    one, two, many = assignment("a"), assignment("b", "c"), b"\0\0" + (5).to_bytes(4, "big") + b"\0\0\0\0\0\0" * 5
    found = [*read_consumers([(metadata, one), (metadata, two)])]
    assert [each.assigned for each in found] == [{"a": [0]}, {"b": [0], "c": [0]}]
    assert topics_of(found) == frozenset("abc")
    with pytest.raises(MalformedSubscriptionError):
        read_assignment(many + b"\xff\xff\xff\xff")
    monkeypatch.setattr(subscription, "read_assignment", lambda data: pytest.fail("it is read"))
    with pytest.raises(MalformedSubscriptionError):
        next(read_consumers([(metadata, two), (metadata, two), (metadata, one)]))


def test_a_topic_that_an_assignment_names_twice_has_the_partitions_of_both() -> None:
    encoded = ASSIGNMENT.build(
        {"version": 0, "assigned": [{"topic": "t", "partitions": [0]}, {"topic": "t", "partitions": [2]}]}
        | {"user_data": None}
    )
    assert read_assignment(encoded) == {"t": [0, 2]}
