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
    read_subscription,
    subscribed_topics,
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
        partitions = {each.topic: list(each.partitions) for each in of_member}
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
        parsed = {each.topic: list(each.partitions) for each in ASSIGNMENT.parse(broken).assigned}
    with contextlib.suppress(MalformedSubscriptionError):
        found = read_assignment(broken)
    assert found == parsed


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
