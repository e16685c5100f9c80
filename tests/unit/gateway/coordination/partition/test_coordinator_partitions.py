"""The partitions of an internal topic follow their placement, also when it changes twice in one turn of the loop."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from coordinator.fleet.leadership import PartitionRole
from gateway.coordination.partition.coordinator_partitions import CoordinatorPartitions, InternalTopicSpec
from tests.unit.gateway.coordination.partition.counter_coordinator import COUNTERS, CounterCoordinator
from tests.unit.gateway.coordination.partition.fake_internal_topic import FakeInternalTopic
from tests.unit.gateway.coordination.partition.test_coordinator_partition import Harness

NOT_NEEDED = cast(Any, None)


class Gateway(Harness):
    """With one partition, which is placed here or elsewhere."""

    def __init__(self, topic: FakeInternalTopic | None = None) -> None:
        super().__init__(topic)
        self.partitions: CoordinatorPartitions[CounterCoordinator] = CoordinatorPartitions(
            InternalTopicSpec("t", 1, 1), COUNTERS, NOT_NEEDED, NOT_NEEDED, NOT_NEEDED,
            _Placed(self), NOT_NEEDED, self.clock,
        )  # fmt: skip
        self.partitions.partitions = [self.partition]

    def place(self, role: PartitionRole) -> None:
        self.role = role
        self.partitions.follow_placement()


class _Placed:
    """The fleet, as the gateway sees it."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def leads(self, topic: str, partition: int) -> bool:
        return self._gateway.role is not PartitionRole.ELSEWHERE

    def role(self, topic: str, partition: int) -> PartitionRole:
        return self._gateway.role


async def test_a_partition_that_was_elsewhere_for_a_moment_is_loaded_anew() -> None:
    """A suspended gateway reads in one turn that it was evicted and that it is a member again. Its producer was fenced
    in between, and nothing said so."""
    first = Gateway()
    first.topic.fences_silently = True
    first.place(PartitionRole.LEADING)
    await first.until(lambda: first.loaded == [0])
    await first.count()
    second = await Harness(first.topic).start()
    await second.count()
    await second.partition.resign()
    assert first.look() == 1, "the state before the other gateway led"

    first.place(PartitionRole.ELSEWHERE)
    first.place(PartitionRole.LEADING)
    await first.partitions.release_partitions()
    await first.until(lambda: first.loaded == [0, 1])
    assert first.look() == 2
    await first.partitions.stop()


async def test_releasing_waits_although_the_partition_is_placed_here_again() -> None:
    """Only then may the others learn that this gateway has released what it lost."""
    gateway = Gateway()
    gateway.place(PartitionRole.LEADING)
    await gateway.until(lambda: gateway.loaded == [0])
    producer = gateway.topic.producers[-1]
    gateway.place(PartitionRole.ELSEWHERE)
    gateway.place(PartitionRole.LEADING)
    assert not producer.closed
    await gateway.partitions.release_partitions()
    assert producer.closed
    await gateway.partitions.stop()


async def test_takes_no_partition_after_it_was_stopped() -> None:
    """The fleet still reports changes while the rest of a cluster is closed; another gateway, or this one with the
    cluster opened again, leads then."""
    gateway = Gateway()
    gateway.place(PartitionRole.LEADING)
    await gateway.until(lambda: gateway.loaded == [0])
    stopping = asyncio.ensure_future(gateway.partitions.stop())
    await asyncio.sleep(0)
    gateway.partitions.follow_placement()
    await stopping
    gateway.partitions.follow_placement()
    await gateway.partitions.release_partitions()
    assert not gateway.partition.taken
    assert len(gateway.topic.producers) == 1
