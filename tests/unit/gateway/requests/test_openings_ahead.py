"""Logs of a topic that are prepared before an idempotent batch waits for them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.fleet.leadership import PartitionRole
from gateway.errors import KafkaError
from gateway.pulsar.errors import PulsarError
from gateway.requests import openings_ahead
from gateway.requests.openings_ahead import OpeningsAhead
from gateway.topics.topic import Topic
from protocol.kafka.errors import ErrorCode
from tests.unit.event_loop import let_callbacks_run

PARTITIONS = 12


class FakeCluster:
    """Its fleet and its logs. The gateway leads all partitions but those in ``elsewhere``."""

    def __init__(self) -> None:
        self.epoch = 1
        self.elsewhere: set[int] = set()
        self.loaded: set[int] = set()
        self.opened: list[int] = []
        self.prepared: list[int] = []
        self.may_open = asyncio.Event()
        self.may_open.set()
        self.failure: Exception | None = None
        self.ahead = OpeningsAhead()

    def role(self, name: str, partition: int) -> PartitionRole:
        return PartitionRole.ELSEWHERE if partition in self.elsewhere else PartitionRole.LEADING

    def find(self, name: str, partition: int) -> Any:
        return SimpleNamespace(producers=SimpleNamespace(loaded=True)) if partition in self.loaded else None

    async def open(self, topic: Any, partition: int) -> Any:
        self.opened.append(partition)
        await self.may_open.wait()
        if self.failure is not None:
            raise self.failure

        async def prepare_for_producers() -> None:
            self.prepared.append(partition)
            self.loaded.add(partition)

        return SimpleNamespace(prepare_for_producers=prepare_for_producers)

    async def needs(self, *partitions: int, partition_count: int = PARTITIONS) -> list[int]:
        """The partitions that are opened ahead when batches need these, each of them twice."""
        before = len(self.opened)
        topic = cast(Topic, SimpleNamespace(name="t", partitions=partition_count))
        for partition in partitions:
            self.ahead.needed(topic, partition, cast(Any, self), cast(Any, self))
            self.ahead.needed(topic, partition, cast(Any, self), cast(Any, self))
            self.loaded.add(partition)
        await let_callbacks_run()
        return self.opened[before:]


async def test_each_needed_log_has_two_more_prepared() -> None:
    cluster = FakeCluster()
    assert await cluster.needs(0) == [1, 2]
    assert cluster.prepared == [1, 2]


async def test_the_number_doubles_while_they_are_needed() -> None:
    cluster = FakeCluster()
    assert await cluster.needs(0) == [1, 2]
    assert await cluster.needs(1, 2) == [3, 4, 5, 6]
    assert await cluster.needs(3, 4, 5, 6) == [7, 8, 9, 10, 11]


async def test_a_log_that_was_needed_before_has_none_prepared() -> None:
    cluster = FakeCluster()
    await cluster.needs(0)
    assert await cluster.needs(0) == []
    await cluster.needs(1)
    assert await cluster.needs(1) == []


async def test_partitions_before_the_first_one_come_last_and_each_comes_once() -> None:
    cluster = FakeCluster()
    assert await cluster.needs(10) == [11, 0]
    assert await cluster.needs(11, 0) == [1, 2, 3, 4]
    assert await cluster.needs(6) == [5, 7]
    cluster.loaded.clear()  # as if they were closed
    assert await cluster.needs(3, 4) == [8, 9]


async def test_logs_of_other_leaders_and_logs_that_are_ready_are_passed() -> None:
    cluster = FakeCluster()
    cluster.elsewhere, cluster.loaded = {1, 3}, {2}
    assert await cluster.needs(0) == [4, 5]


async def test_a_log_is_not_prepared_when_another_gateway_leads_it_since() -> None:
    cluster = FakeCluster()
    cluster.may_open.clear()
    await cluster.needs(0)
    cluster.elsewhere = {1}
    cluster.may_open.set()
    await let_callbacks_run()
    assert cluster.prepared == [2]


async def test_a_topic_that_was_created_again_with_fewer_partitions() -> None:
    cluster = FakeCluster()
    await cluster.needs(0)
    assert await cluster.needs(1, partition_count=2) == []


async def test_a_change_of_the_fleet_begins_anew() -> None:
    cluster = FakeCluster()
    await cluster.needs(0)
    cluster.epoch, cluster.loaded = 2, set()
    assert await cluster.needs(0) == [1, 2]


async def test_a_while_after_the_change_nothing_is_prepared_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    monkeypatch.setattr(openings_ahead, "WINDOW_S", 0.0)
    assert await cluster.needs(0, 1) == []
    monkeypatch.undo()
    assert await cluster.needs(2) == []


async def test_a_bounded_number_is_prepared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openings_ahead, "MAX_AT_ONCE", 3)
    cluster = FakeCluster()
    cluster.may_open.clear()
    assert await cluster.needs(0, 5) == [1, 2, 3]
    assert await cluster.needs(7) == []
    cluster.may_open.set()
    await let_callbacks_run()
    assert await cluster.needs(8) == [4, 6]


@pytest.mark.parametrize(
    "error", [KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER), PulsarError("closed"), TimeoutError(), OSError()]
)
async def test_a_failure_is_left_to_the_batch_that_needs_the_log(error: Exception) -> None:
    cluster = FakeCluster()
    cluster.failure = error
    for round_number in range(3):
        cluster.epoch = round_number
        assert await cluster.needs(0 if round_number == 0 else 3) != []
        cluster.loaded.clear()
    assert cluster.prepared == []
