"""The snapshot that a subscription passes, and its progress when only markers follow it."""

from typing import cast

import pytest

from gateway.coordination.mirror import snapshots as mirror_snapshots
from gateway.coordination.mirror.cursors import Cursors
from gateway.coordination.mirror.snapshots import SNAPSHOT, Reach, Snapshots
from gateway.log.reading.entry_lookup import EntryLookup
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.topics import StoredEntry
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.position import Position
from gateway.pulsar.subscription import Subscription
from tests.unit.gateway.coordination.mirror.fake_cursors import FakeSubscription, FakeTopic

REQUEST = 10


def at(entry_id: int) -> Position:
    return Position(3, entry_id)


def log_of(markers: dict[int, int], entries: int) -> FakeTopic:
    """One ledger of entries with one message each, some of them markers."""
    topic = FakeTopic([[1] * entries])
    for number, marker in markers.items():
        topic.mark(at(number), marker)
    return topic


def snapshots_of(topic: FakeTopic) -> Snapshots:
    return Snapshots(EntryLookup(cast(PulsarClient, topic), cast(AdminClient, topic)))


@pytest.mark.parametrize(
    ("position", "reach"),
    [(0, Reach(at(0), False)), (1, Reach(at(3), False)), (4, Reach(at(9), True))],
)
async def test_markers_are_nothing_to_read(position: int, reach: Reach) -> None:
    topic = log_of({2: REQUEST, 3: SNAPSHOT, 5: REQUEST, 6: REQUEST, 7: REQUEST, 8: SNAPSHOT, 9: REQUEST}, 10)
    assert await snapshots_of(topic).reach(cast(Subscription, FakeSubscription(topic, "g")), at(position)) == reach


async def test_what_is_written_meanwhile_is_not_taken_for_markers() -> None:
    topic = log_of({1: REQUEST}, 2)

    class Growing(FakeSubscription):
        async def last_position(self) -> Position:
            last = await super().last_position()
            topic.entries[at(2)] = StoredEntry(at(2), 2, 1)
            return last

    topic.cursors["g"] = (at(-1), {})
    reach = await snapshots_of(topic).reach(cast(Subscription, Growing(topic, "g")), at(0))
    assert reach == Reach(at(0), False)


async def test_what_brokers_hold_back_is_not_taken_for_markers() -> None:
    """The group reads it when the native transaction has ended."""
    topic = log_of({1: REQUEST, 4: SNAPSHOT}, 5)
    topic.hold_back(at(2))
    subscription = cast(Subscription, FakeSubscription(topic, "g"))
    assert await snapshots_of(topic).reach(subscription, at(0)) == Reach(at(1), True)


async def test_newest() -> None:
    snapshots = snapshots_of(log_of({2: SNAPSHOT, 20: REQUEST, 30: SNAPSHOT, 31: REQUEST}, 60))
    assert await snapshots.newest("t", at(1), None) is None
    assert await snapshots.newest("t", at(29), None) == at(2)
    assert await snapshots.newest("t", at(59), at(10)) == at(30)
    assert await snapshots.newest("t", at(59), at(40)) == at(30), "it is known"
    assert await snapshots.newest("t", at(29), at(5)) is None, "one before what was known does not count"


async def test_what_lies_too_far_back_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_snapshots, "MAX_LOOK_BACK", 20)
    snapshots = snapshots_of(log_of({2: SNAPSHOT}, 60))
    assert await snapshots.newest("t", at(59), None) is None
    assert await snapshots.newest("t", at(21), None) == at(2)


async def test_a_subscription_takes_the_snapshots_along_that_it_passes() -> None:
    """Dispatched one by one, each before it is acknowledged."""
    topic = log_of({3: SNAPSHOT, 6: REQUEST, 7: SNAPSHOT}, 10)
    cursors = Cursors(cast(PulsarClient, topic), cast(AdminClient, topic), replicated=True)
    assert await cursors.move("t", "g", 2, None, None)
    assert topic.dispatched == []
    assert await cursors.move("t", "g", 5, None, None)
    assert topic.dispatched == [("g", at(3))]
    assert await cursors.move("t", "g", 9, None, None)
    assert topic.dispatched == [("g", at(3)), ("g", at(7))]
    assert not await cursors.move("t", "g", 10, None, None), "no snapshot lies behind the last record"
    assert topic.cursors["g"] == (at(9), {"kafka.offset": 10})


async def test_the_markers_at_the_end_are_read_too() -> None:
    topic = log_of({2: SNAPSHOT, 3: REQUEST}, 4)
    cursors = Cursors(cast(PulsarClient, topic), cast(AdminClient, topic), replicated=True)
    for _ in range(2):
        assert await cursors.move("t", "g", 2, None, None)
        assert topic.cursors["g"] == (at(3), {"kafka.offset": 2})
    assert topic.dispatched == [("g", at(2))]
    await cursors.move("t", "g", 1, None, None)
    assert topic.cursors["g"][0] == at(0), "a group may be set back"
