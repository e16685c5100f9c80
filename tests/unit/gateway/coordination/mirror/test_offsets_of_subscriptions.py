"""Groups without a commit start at the subscription of their name: how often Pulsar is asked for subscriptions."""

import asyncio
from typing import cast

import pytest

from coordinator.group.messages import NO_OFFSET
from coordinator.topics import TopicPartition
from gateway.coordination.group_partition import GroupPartition
from gateway.coordination.mirror import mirror
from gateway.coordination.mirror import reads as mirror_reads
from gateway.pulsar.errors import ServiceNotReadyError
from tests.unit.gateway.coordination.fake_coordinator import FakeCoordinator
from tests.unit.gateway.coordination.mirror.mirror_harness import T0, T1, TIMEOUT_S, Harness


async def test_a_crowd_of_new_groups_is_one_look(harness: Harness) -> None:
    harness.cursors.offsets["t-0", "known"] = 5
    groups = ["known", *(f"g{number}" for number in range(50))]
    found = await asyncio.gather(*(harness.mirror.offsets(group, {T0: NO_OFFSET, T1: NO_OFFSET}) for group in groups))
    assert found == [{T0: 5}, *[{}] * 50]
    assert harness.cursors.looks == {"t-0": 1, "t-1": 1}
    assert harness.cursors.reads == {"t-0": 1}, "topics without subscriptions are not loaded"


async def test_a_retry_after_a_timeout_continues(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many partitions of a slow Pulsar: each is read once, although this takes longer than a result is valid."""
    monkeypatch.setattr(mirror, "READ_TIMEOUT_S", 0.05)
    monkeypatch.setattr(mirror_reads, "MAX_AGE_S", 0.01)
    harness.cursors.slow_s = 0.01
    harness.cursors.offsets["t-0", "g"] = 7
    wanted = {TopicPartition("t", number): NO_OFFSET for number in range(300)}
    timeouts = 0
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                found = await harness.mirror.offsets("g", wanted)
                break
            except TimeoutError:
                timeouts += 1
    assert timeouts > 1
    assert found == {T0: 7}
    assert set(harness.cursors.looks.values()) == {1}
    await asyncio.sleep(0.02)
    harness.cursors.slow_s = 0
    harness.cursors.offsets["t-1", "g"] = 8
    assert await harness.mirror.offsets("g", {T0: NO_OFFSET, T1: NO_OFFSET}) == {T0: 7, T1: 8}, "it was answered"


async def test_a_crowd_of_new_subscriptions_is_one_look(harness: Harness) -> None:
    for number in range(50):
        harness.commit(f"g{number}", T0, 1)
    await harness.until_mirrored()
    assert harness.cursors.reads == {"t-0": 1}
    assert await harness.mirror.offsets("g7", {T0: NO_OFFSET}) == {T0: 1}
    assert harness.cursors.looks == {"t-0": 1}
    assert harness.cursors.reads == {"t-0": 2}, "it was not there at the first look"


async def test_exporters_that_ask_for_every_partition_of_each_group_are_one_look(harness: Harness) -> None:
    wanted = {TopicPartition("t", number): NO_OFFSET for number in range(500)}
    for number in range(20):
        assert await harness.mirror.offsets(f"g{number}", wanted) == {}
    assert set(harness.cursors.looks.values()) == {1}
    assert not harness.cursors.reads
    assert harness.cursors.most_reading <= mirror_reads.MAX_AT_ONCE


async def test_what_is_remembered_of_subscriptions_is_bounded(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_reads, "MAX_CURSORS", 10)
    for number in range(4):
        for name in range(5):
            harness.cursors.offsets[f"t-{number}", f"g{name}"] = 1
    for number in range(4):
        await harness.mirror.offsets("g0", {TopicPartition("t", number): NO_OFFSET})
    for number in (3, 2, 0):
        await harness.mirror.offsets("g0", {TopicPartition("t", number): NO_OFFSET})
    assert harness.cursors.reads == {"t-0": 2, "t-1": 1, "t-2": 1, "t-3": 1}


async def test_what_another_gateway_moved_meanwhile_is_looked_at_again(harness: Harness) -> None:
    harness.commit("g", T0, 7)
    await harness.until_mirrored()
    harness.mirror.partition_loaded(cast(GroupPartition, FakeCoordinator({})), [])
    before = harness.cursors.reads["t-0"]
    harness.commit("g", T0, 3)
    await harness.until_mirrored()
    assert harness.cursors.reads["t-0"] == before + 1


async def test_what_another_gateway_deleted_meanwhile_is_looked_at_again(harness: Harness) -> None:
    """Its subscriptions were read for another group, just before the group came here."""
    harness.cursors.offsets = {("t-0", "g"): 7, ("t-0", "other"): 3}
    assert await harness.mirror.offsets("other", {T0: NO_OFFSET}) == {T0: 3}
    del harness.cursors.offsets["t-0", "g"]
    harness.mirror.partition_loaded(cast(GroupPartition, FakeCoordinator({})), [])
    assert await harness.mirror.offsets("g", {T0: NO_OFFSET}) == {}


async def test_a_failed_look_is_an_error_once(harness: Harness) -> None:
    harness.cursors.failures = [ServiceNotReadyError("moving")]
    with pytest.raises(ServiceNotReadyError):
        await harness.mirror.offsets("g", {T0: NO_OFFSET})
    assert await harness.mirror.offsets("g", {T0: NO_OFFSET}) == {}


async def test_what_is_committed_here_counts_for_ourselves(harness: Harness) -> None:
    harness.cursors.bare, harness.cursors.bare_offset = {("t-0", "g")}, 30
    assert await harness.mirror.offsets("g", {T0: 20}) == {}


async def test_a_topic_that_is_created_again_has_no_subscription_of_the_old_one(harness: Harness) -> None:
    harness.cursors.offsets = {("t-0", "g"): 100, ("t-0", "other"): 50}
    assert await harness.mirror.offsets("other", {T0: NO_OFFSET}) == {T0: 50}
    harness.cursors.offsets = {}
    harness.topics.create_again()
    assert await harness.mirror.offsets("g", {T0: NO_OFFSET}) == {}
    harness.cursors.offsets = {("t-0", "g"): 7}
    harness.topics.create_again()
    assert await harness.mirror.offsets("g", {T0: NO_OFFSET}) == {T0: 7}


@pytest.mark.parametrize("known", ["old", "new", "none"])
async def test_a_read_of_a_topic_that_is_created_again_meanwhile_is_not_used(harness: Harness, known: str) -> None:
    """This gateway may not have heard of it: another one, or Pulsar's own tools, have deleted the topic."""
    harness.cursors.offsets = {("t-0", "g"): 100}
    harness.cursors.slow_s = 0.02
    asking = asyncio.create_task(harness.mirror.offsets("g", {T0: NO_OFFSET}))
    await harness.until(lambda: bool(harness.cursors.reads))
    before = harness.topics.known_id
    harness.topics.create_again()
    if known != "new":
        harness.topics.known_id = before if known == "old" else None
    assert await asking == {}
    harness.cursors.offsets = {}
    harness.topics.known_id = harness.topics.stored_id
    assert await harness.mirror.offsets("g", {T0: NO_OFFSET}) == {}


async def test_a_commit_in_a_topic_that_is_created_again_moves_its_subscription(harness: Harness) -> None:
    """Although the old topic's, which was just read for another group, stood at the same offset."""
    harness.commit("g", T0, 7)
    await harness.until_mirrored()
    harness.commit("other", T0, 3)
    await harness.until_mirrored()
    await harness.mirror.leave_topic("t")
    harness.topics.create_again()
    before = harness.cursors.reads["t-0"]
    harness.commit("g", T0, 7)
    await harness.until_mirrored()
    assert harness.cursors.reads["t-0"] == before + 1
