"""Updates of subscriptions after commits: the latest offset wins, failures are retried, partitions do not block each
other."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import cast

import pytest
import uvloop

from coordinator.group.messages import NO_OFFSET
from coordinator.topics import TopicPartition
from gateway import fan_out
from gateway.coordination.group_partition import GroupPartition
from gateway.coordination.mirror import mirror
from gateway.coordination.mirror import schedule as mirror_schedule
from gateway.coordination.mirror.schedule import MirrorKey, MirrorSchedule
from gateway.pulsar.errors import ConsumerBusyError, PulsarError, ServiceNotReadyError
from gateway.topics.topic import Topic
from gateway.topics.topic_names import INTERNAL_TOPICS
from tests.unit.gateway.coordination.fake_coordinator import FakeCoordinator
from tests.unit.gateway.coordination.mirror.mirror_harness import T0, T1, TIMEOUT_S, Harness


async def test_the_latest_offset_wins(harness: Harness) -> None:
    harness.cursors.held["t-0"] = asyncio.Event()
    for offset in range(5):
        harness.commit("g", T0, offset)
    await harness.until(lambda: bool(harness.cursors.moves))
    for offset in range(5, 100):
        harness.commit("g", T0, offset)
    harness.cursors.held["t-0"].set()
    await harness.until_mirrored()
    assert harness.cursors.moves == [("t-0", "g", 4), ("t-0", "g", 99)]
    assert harness.value("mirror_updates_total") == 2


def test_turns_due_at_once_on_the_loop_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_schedule, "COALESCE_MS", 0)
    monkeypatch.setattr(mirror_schedule, "START_EVERY_MS", 0)

    async def commit_twice() -> list[tuple[str, str, int]]:
        made = Harness()
        made.commit("g", T0, 1)
        made.commit("g", T1, 2)  # before the turn that is due already
        await made.until_mirrored()
        await made.mirror.stop()
        return made.cursors.moves

    assert uvloop.run(commit_twice()) == [("t-0", "g", 1), ("t-1", "g", 2)]


async def test_a_long_pause_of_one_holds_no_other(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_schedule, "PAUSE_FIRST_MS", 60_000)
    harness.cursors.failures.append(PulsarError("for a long time"))
    harness.commit("failing", T0, 1)
    await harness.until(lambda: harness.value("mirror_failures_total", error="PulsarError") == 1)
    harness.commit("g", T1, 2)
    await harness.until(lambda: ("t-1", "g") in harness.cursors.offsets)


async def test_a_partition_that_hangs_holds_no_other(harness: Harness) -> None:
    harness.cursors.held["t-0"] = asyncio.Event()
    for number in range(20):
        harness.commit(f"g{number}", T0, 1)
    harness.commit("g", T1, 7)
    await harness.until(lambda: harness.cursors.offsets == {("t-1", "g"): 7})
    assert harness.value("mirror_lag_seconds") >= 0
    harness.cursors.held["t-0"].set()
    await harness.until_mirrored()
    assert len(harness.cursors.offsets) == 21


async def test_failures_are_tried_again(harness: Harness) -> None:
    harness.cursors.failures = [
        ConsumerBusyError("in use"),
        ConsumerBusyError("in use"),
        ServiceNotReadyError("moving"),
    ]
    harness.commit("g", T0, 7)
    await harness.until_mirrored()
    assert harness.cursors.offsets == {("t-0", "g"): 7}
    assert harness.value("mirror_failures_total", error="ConsumerBusyError") == 2
    assert harness.value("mirror_failures_total", error="ServiceNotReadyError") == 1
    assert harness.value("mirror_updates_total") == 1


async def test_a_defect_is_not_the_end(harness: Harness) -> None:
    harness.cursors.failures = [cast(PulsarError, KeyError("defect"))]
    harness.commit("g", T0, 7)
    await harness.until_mirrored()
    assert harness.cursors.offsets == {("t-0", "g"): 7}


async def test_removed_offsets_take_their_subscription_along(harness: Harness) -> None:
    harness.commit("g", T0, 7)
    await harness.until_mirrored()
    assert await harness.mirror.offsets("g", {T0: NO_OFFSET}) == {T0: 7}
    harness.cursors.held["t-0"] = asyncio.Event()
    harness.commit("g", T0, NO_OFFSET)
    assert await harness.mirror.offsets("g", {T0: NO_OFFSET}) == {}, "as soon as the offset is gone"
    harness.cursors.held["t-0"].set()
    await harness.until_mirrored()
    assert harness.cursors.offsets == {}
    assert await harness.mirror.offsets("g", {T0: NO_OFFSET}) == {}, "what was read before is not believed"


async def test_groups_of_other_gateways_and_deleted_topics(harness: Harness) -> None:
    harness.commit("g", T0, None)
    harness.commit("g", TopicPartition("gone", 0), 7)
    harness.commit("g", TopicPartition("t", 999), 7)
    await harness.until_mirrored()
    assert harness.cursors.moves == []


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
async def test_groups_that_read_internal_topics(harness: Harness, topic: str) -> None:
    """A subscription would keep what is trimmed: these topics have no message TTL."""
    harness.commit("monitor", TopicPartition(topic, 0), 7)
    await harness.until_mirrored()
    assert harness.cursors.moves == []
    assert await harness.mirror.offsets("monitor", {TopicPartition(topic, 1): NO_OFFSET}) == {}


async def test_removed_offsets_are_not_forgotten_though_there_is_much_to_do(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.mirror._schedule = MirrorSchedule(max_keys=2)
    for number in range(8):
        harness.cursors.offsets["t-0", f"g{number}"] = 5
        harness.commit(f"g{number}", T0, NO_OFFSET)
    for number in range(8):
        assert await harness.mirror.offsets(f"g{number}", {T0: NO_OFFSET}) == {}
    await harness.until_mirrored()
    assert harness.cursors.offsets == {}
    assert harness.value("mirror_dropped_total") == 0


async def test_a_group_that_has_read_in_another_cluster_continues_after_that(harness: Harness) -> None:
    """Replication moves subscriptions, and removes their offset."""
    harness.cursors.replicated = True
    harness.cursors.bare = {("t-0", "g")}
    harness.cursors.bare_offset = 30
    for committed, start in ((20, {T0: 30}), (30, {}), (40, {}), (NO_OFFSET, {T0: 30})):
        assert await harness.mirror.offsets("g", {T0: committed}) == start
    loaded = cast(GroupPartition, FakeCoordinator({"g": {T0: 20}}))
    harness.committed[MirrorKey("g", T0)] = 20
    harness.mirror.partition_loaded(loaded, [])
    await harness.until(lambda: harness.cursors.reads["t-0"] == 2)
    await harness.until_mirrored()
    assert harness.cursors.moves == [], "it is not moved back to what was committed here"
    harness.commit("g", T0, 20)
    await harness.until_mirrored()
    assert await harness.mirror.offsets("g", {T0: 20}) == {}, "a client set it back"


async def test_a_failed_comparison_moves_no_group_back(harness: Harness) -> None:
    """Pulsar did not answer when the coordinator had loaded the group, which another cluster had moved on."""
    harness.cursors.replicated = True
    harness.cursors.bare, harness.cursors.bare_offset = {("t-0", "g")}, 30
    harness.committed[MirrorKey("g", T0)] = 20
    harness.cursors.failures = [ServiceNotReadyError("moving")]
    harness.mirror.partition_loaded(cast(GroupPartition, FakeCoordinator({"g": {T0: 20}})), [])
    await harness.until(lambda: harness.value("mirror_updates_total") == 1)
    assert harness.cursors.moves == []


async def test_a_group_that_moves_on_after_it_was_compared_is_not_moved_back(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of updates may wait in between."""
    _compare_behind(harness, monkeypatch, asyncio.Event())
    await harness.until(lambda: harness.value("mirror_updates_total") == 1)
    assert harness.cursors.moves == []


async def test_a_commit_after_the_comparison_counts(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = asyncio.Event()
    _compare_behind(harness, monkeypatch, looked)
    await looked.wait()
    harness.commit("g", T0, 15)
    await harness.until(lambda: harness.value("mirror_updates_total") == 2)
    assert harness.cursors.moves == [("t-0", "g", 15)]


def _compare_behind(harness: Harness, monkeypatch: pytest.MonkeyPatch, looked: asyncio.Event) -> None:
    """The subscription is behind what is committed here. At the next look another cluster has moved it on."""
    offsets = iter([10])

    async def offset_at(*_: object) -> int:
        found = next(offsets, None)
        if found is None:
            looked.set()
            await asyncio.sleep(0)
        return 30 if found is None else found

    monkeypatch.setattr(harness.cursors, "offset_at", offset_at)
    harness.cursors.replicated = True
    harness.cursors.bare = {("t-0", "g")}
    harness.committed[MirrorKey("g", T0)] = 20
    harness.mirror.partition_loaded(cast(GroupPartition, FakeCoordinator({"g": {T0: 20}})), [])


async def test_the_end_of_a_log_waits_for_a_snapshot(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "CARRY_OVER_S", 0.001)
    harness.cursors.carried_over = False
    harness.commit("g", T0, 7)
    await harness.until(lambda: len(harness.cursors.moves) == 1 + mirror.CARRY_OVER_ATTEMPTS)
    harness.cursors.carried_over = True
    harness.commit("g", T0, 8)
    await harness.until_mirrored()
    await asyncio.sleep(0.01)
    assert [offset for _, _, offset in harness.cursors.moves] == [*[7] * (1 + mirror.CARRY_OVER_ATTEMPTS), 8]


async def test_loaded_offsets_are_mirrored_where_they_are_not(harness: Harness) -> None:
    harness.cursors.offsets = {("t-0", "right"): 5, ("t-0", "wrong"): 4, ("t-0", "stranger"): 9}
    loaded = {"right": {T0: 5}, "wrong": {T0: 5}, "new": {T0: 1, T1: 2}}
    for group, offsets in loaded.items():
        harness.committed |= {MirrorKey(group, partition): offset for partition, offset in offsets.items()}
    harness.mirror.partition_loaded(cast(GroupPartition, FakeCoordinator(loaded)), set())
    await harness.until(lambda: len(harness.cursors.moves) == 3)
    await harness.until_mirrored()
    assert set(harness.cursors.moves) == {("t-0", "wrong", 5), ("t-0", "new", 1), ("t-1", "new", 2)}
    assert harness.cursors.offsets["t-0", "stranger"] == 9


async def test_other_tasks_run_while_many_groups_of_a_partition_are_compared(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fan_out, "SLICE_S", 0)
    monkeypatch.setattr(mirror_schedule, "COALESCE_MS", 60_000)
    loaded = {f"group-{number}": {T0: number} for number in range(100)}
    harness.mirror.partition_loaded(cast(GroupPartition, FakeCoordinator(loaded)), set())
    pending = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(harness.mirror._schedule) < len(loaded):
            await asyncio.sleep(0)
            pending.append(len(harness.mirror._schedule))
    steps = [after - before for before, after in pairwise(pending)]
    assert max(steps) == 1
    assert pending.count(0) > len(loaded), "the comparison itself has steps, too"


@pytest.mark.parametrize("known", [True, False])
async def test_a_lost_deletion_is_repeated(harness: Harness, known: bool) -> None:
    """Until then no consumer starts at the old position. Subscriptions that Pulsar's tools have created since stay."""
    if not known:
        harness.cursors.failures = [ServiceNotReadyError("not now")]
    else:
        harness.cursors.bare = {("t-0", "made since")}
    harness.cursors.offsets = {("t-0", "left"): 5, ("t-0", "stranger"): 9}
    deleted = {("left", T0), ("gone", T0), ("made since", T0), ("left", TopicPartition("deleted", 0))}
    harness.mirror.partition_loaded(cast(GroupPartition, FakeCoordinator({})), deleted)
    assert await harness.mirror.offsets("left", {T0: NO_OFFSET}) == {}
    await harness.until(lambda: ("t-0", "left") not in harness.cursors.offsets)
    await harness.until_mirrored()
    assert harness.cursors.offsets == {("t-0", "stranger"): 9}
    assert harness.cursors.bare == ({("t-0", "made since")} if known else set())
    assert harness.cursors.moves == []
    harness.cursors.offsets["t-0", "left"] = 7
    assert await harness.mirror.offsets("left", {T0: NO_OFFSET}) == {T0: 7}


async def test_groups_stand_nowhere_in_new_partitions(harness: Harness) -> None:
    harness.cursors.offsets["t-0", "group"] = harness.cursors.offsets["t-3", "group"] = 5
    harness.cursors.bare = {("t-0", "native"), ("t-1", "native"), ("t-1", "group"), ("t-2", "group")}
    topic = SimpleNamespace(topic_id=harness.topics.known_id, pulsar_topic=lambda number: f"t-{number}")
    await harness.mirror.partitions_added(cast(Topic, topic), range(1, 4))
    assert harness.cursors.bare == {("t-0", "native"), ("t-1", "native")}
    assert harness.cursors.offsets == {("t-0", "group"): 5, ("t-3", "group"): 5}


async def test_attempts_to_carry_over_are_forgotten_after_the_last_one(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "CARRY_OVER_S", 0.001)
    harness.cursors.carried_over = False
    harness.commit("carried", T0, 7)
    harness.commit("deleted", T0, 7)
    await harness.until(lambda: len(harness.mirror._carried) == 2)
    harness.cursors.carried_over = True
    harness.committed[MirrorKey("deleted", T0)] = NO_OFFSET
    await harness.until(lambda: not harness.mirror._carried)


async def test_a_topic_is_not_deleted_while_its_cursors_are_written(harness: Harness) -> None:
    """Pulsar would keep such a cursor, and never create a topic of the name again."""
    harness.cursors.held["t-0"] = asyncio.Event()
    await harness.mirror.leave_topic("t")
    harness.commit("g", T0, 7)
    await harness.until(lambda: bool(harness.cursors.moves))
    await harness.mirror.leave_topic("other")
    leaving = asyncio.create_task(harness.mirror.leave_topic("t"))
    await asyncio.sleep(0)
    assert not leaving.done()
    harness.cursors.held["t-0"].set()
    await leaving
    assert harness.cursors.offsets == {("t-0", "g"): 7}
    assert not harness.mirror._updating
