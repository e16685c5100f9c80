"""Every partition has a leader; leaders are evenly distributed; few partitions move."""

from collections import Counter

import pytest

from coordinator.fleet import placement
from coordinator.fleet.placement import PartitionKey, Placement

KEYS = [PartitionKey(f"topic-{topic}", number) for topic in range(100) for number in range(30)]


def leaders(*node_ids: int) -> dict[PartitionKey, int | None]:
    placement = Placement(node_ids)
    return {key: placement.leader(key) for key in KEYS}


def test_no_members_no_leader() -> None:
    assert Placement(()).leader(KEYS[0]) is None


def test_the_order_of_nodes_does_not_matter() -> None:
    assert leaders(1, 2, 3) == leaders(3, 1, 2)


def test_is_even() -> None:
    counts = Counter(leaders(*range(10)).values())
    assert set(counts) == set(range(10))
    assert min(counts.values()) > 0.75 * len(KEYS) / 10
    assert max(counts.values()) < 1.25 * len(KEYS) / 10


def test_only_partitions_of_a_member_that_leaves_move() -> None:
    before, after = leaders(0, 1, 2, 7), leaders(0, 1, 7)
    assert {key for key in KEYS if before[key] != after[key]} == {key for key in KEYS if before[key] == 2}


def test_is_the_same_for_ever() -> None:
    """Gateways of two releases must agree."""
    found = Placement((0, 1, 2))
    assert [found.leader(PartitionKey("orders", number)) for number in range(8)] == [2, 1, 0, 0, 1, 1, 2, 0]


def test_names_that_clients_make_up_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "MAX_REMEMBERED", 10)
    found = Placement((0, 1, 2))
    asked = {key: found.leader(key) for key in KEYS}
    assert sum(map(len, found._leaders.values())) == found._count <= 10
    assert asked == leaders(0, 1, 2)


def test_deleted_topics_are_forgotten() -> None:
    found = Placement((0, 1, 2))
    for key in KEYS:
        found.leader(key)
    for topic in range(1, 100):
        found.forget(f"topic-{topic}")
        found.forget(f"topic-{topic}")
    assert list(found._leaders) == ["topic-0"]
    assert found._count == 30


def test_names_that_no_topic_has_are_not_remembered() -> None:
    """Any client may send names of 32 KB: those remembered would fill the memory."""
    found = Placement((0, 1, 2))
    for length in (249, placement.MAX_REMEMBERED_LENGTH, 32_767):
        key = PartitionKey("t" * length, 0)
        assert found.leader(key) == found.leader(key) == Placement((0, 1, 2)).leader(key)
    assert len(found._leaders) == 2


@pytest.mark.parametrize("letter", ["x", "\U0001f600"])
def test_long_names_count_by_their_bytes(monkeypatch: pytest.MonkeyPatch, letter: str) -> None:
    monkeypatch.setattr(placement, "MAX_REMEMBERED", 100)
    found, most = Placement((0, 1, 2)), 0
    for number in range(200):
        found.leader(PartitionKey(f"{number}".ljust(placement.MAX_REMEMBERED_LENGTH, letter), 0))
        most = max(most, len(found._leaders))
    size_bytes = most * len(letter.encode()) * placement.MAX_REMEMBERED_LENGTH
    assert 0 < size_bytes <= 100 * placement.NAME_BYTES
    for topic in [*found._leaders]:
        found.leader(PartitionKey(topic, 1))
        found.forget(topic)
        found.forget(topic)
    assert found._count == 0
