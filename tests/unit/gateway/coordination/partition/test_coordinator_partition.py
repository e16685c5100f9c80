"""A partition leads any coordinator: here one that counts. `test_group_partition` tests it with groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from coordinator.fleet.leadership import PartitionRole
from gateway import background
from gateway.coordination.partition import coordinator_partition
from gateway.coordination.partition.clock import WallClock
from gateway.coordination.partition.coordinator_partition import ANSWERING, Answering, CoordinatorPartition
from gateway.coordination.partition.coordinators import CoordinatesNothing
from gateway.coordination.partition.internal_log import InternalLog
from gateway.coordination.partition.kind import StandIns
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ConnectionLostError
from protocol.pulsar.entry import encode_message
from tests.unit.gateway.coordination.partition.counter_coordinator import COUNTERS, IDLE_MS, Answer, CounterCoordinator
from tests.unit.gateway.coordination.partition.fake_internal_topic import FakeInternalTopic, new_trimming

TIMEOUT_S = 10.0


class FakeClock(WallClock):
    """Advances by itself, and by `skipped_ms`."""

    skipped_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.skipped_ms


class Harness:
    def __init__(self, topic: FakeInternalTopic | None = None) -> None:
        self.topic = topic or FakeInternalTopic()
        self.role = PartitionRole.LEADING
        self.clock = FakeClock()
        self.loaded: list[int] = []
        self.partition: CoordinatorPartition[CounterCoordinator] = CoordinatorPartition(
            cast(PulsarClient, self.topic), "t", COUNTERS, StandIns(COUNTERS, self.clock.now_ms()), self.clock,
            lambda: self.role, new_trimming(self.topic), lambda partition, loaded: self.loaded.append(loaded),
        )  # fmt: skip

    async def start(self) -> Harness:
        self.partition.take()
        await asyncio.wait_for(self.partition.tried.wait(), TIMEOUT_S)
        return self

    def send_count(self, name: str = "a") -> asyncio.Future[Answer]:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.partition.run(lambda coordinator, now_ms: coordinator.count(name, now_ms, answer.set_result))
        return answer

    async def count(self, name: str = "a") -> Answer:
        return await asyncio.wait_for(self.send_count(name), TIMEOUT_S)

    def wait(self) -> asyncio.Future[Answer]:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.partition.run(lambda coordinator, now_ms: coordinator.wait(now_ms, answer.set_result))
        return answer

    def look(self, name: str = "a") -> Answer | int:
        return self.partition.run(lambda coordinator, now_ms: coordinator.look(name))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                await asyncio.sleep(0)


def test_every_role_has_an_answer() -> None:
    assert ANSWERING.keys() == {(role, taken) for role in PartitionRole for taken in (False, True)}
    assert [key for key, who in ANSWERING.items() if who is Answering.COORDINATOR] == [(PartitionRole.LEADING, True)]


@pytest.mark.parametrize(
    ("role", "answer"),
    [
        (PartitionRole.LEADING, Answer.LOADING),
        (PartitionRole.TAKING_OVER, Answer.LOADING),
        (PartitionRole.WITHOUT_LEASE, Answer.GONE),
        (PartitionRole.ELSEWHERE, Answer.GONE),
    ],
)
async def test_a_partition_that_is_not_taken_says_why(role: PartitionRole, answer: Answer) -> None:
    harness = Harness()
    harness.role = role
    assert harness.look() is answer
    assert await harness.count() is answer
    assert not harness.topic.entries


async def test_loads_what_was_written_and_serves() -> None:
    first = await Harness().start()
    assert [await first.count(), await first.count(), await first.count("b")] == [Answer.COUNTED] * 3
    await first.partition.resign()
    second = Harness(first.topic)
    assert second.look() is Answer.LOADING
    await second.start()
    assert (second.look(), second.look("b"), second.loaded) == (2, 1, [2])
    await second.partition.resign()


async def test_a_record_that_cannot_be_read_is_passed_over() -> None:
    first = await Harness().start()
    await first.count()
    await first.count("b")
    await first.partition.resign()
    first.topic.write(encode_message(b"?", key=b"a"), 1)
    second = await Harness(first.topic).start()
    assert (second.look(), second.look("b")) == (1, 1)
    await second.partition.resign()


async def test_a_fenced_leader_answers_not_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_partition, "PAUSE_SUPERSEDED_S", 60)
    first = await Harness().start()
    await first.count()
    second = await Harness(first.topic).start()
    assert await first.count() is Answer.GONE
    await first.until(lambda: first.look() is Answer.GONE)
    assert await second.count() is Answer.COUNTED
    assert second.look() == 2
    await first.partition.resign()
    await second.partition.resign()


async def test_takes_a_lost_partition_again_though_its_coordinator_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_partition, "PAUSE_FIRST_S", 0.001)
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    harness = await Harness().start()
    await harness.count()

    def fail(now_ms: int) -> None:
        raise AssertionError("a defect")

    harness.partition.run(lambda coordinator, now_ms: setattr(coordinator, "resign", fail))
    harness.topic.producers[-1].lose(ConnectionLostError("lost"))
    await harness.until(lambda: harness.loaded == [0, 1])
    assert harness.look() == 1
    assert [str(each["exception"]) for each in reported] == ["a defect"]
    await harness.partition.resign()


@pytest.mark.parametrize("defect", ["close", "new"])
async def test_takes_a_lost_partition_again_though_its_log_fails(monkeypatch: pytest.MonkeyPatch, defect: str) -> None:
    """Otherwise nobody would lead it until the gateway restarts."""
    monkeypatch.setattr(coordinator_partition, "PAUSE_FIRST_S", 0.001)
    monkeypatch.setattr(background, "RESTART_PAUSE_S", 0.001)
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    harness = await Harness().start()
    await harness.count()

    def fail(*_: object) -> Any:
        monkeypatch.undo()
        raise AssertionError("a defect")

    if defect == "close":
        monkeypatch.setattr(InternalLog, "close", fail)
    else:
        monkeypatch.setattr(harness.partition, "_new_log", fail)
    harness.topic.producers[-1].lose()
    await harness.until(lambda: bool(reported))
    await harness.until(lambda: harness.look() == 1)
    assert [isinstance(each["exception"], AssertionError) for each in reported] == [True]
    await harness.partition.resign()


async def test_takes_a_lost_partition_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_partition, "PAUSE_FIRST_S", 0.001)
    harness = await Harness().start()
    await harness.count()
    waiting = harness.wait()
    harness.topic.producers[-1].lose(ConnectionLostError("lost"))
    assert await asyncio.wait_for(waiting, TIMEOUT_S) is Answer.GONE
    await harness.until(lambda: harness.look() == 1)
    assert harness.loaded == [0, 1]
    await harness.partition.resign()


async def test_without_the_lease_it_is_paused_and_then_timeouts_start_again() -> None:
    harness = await Harness().start()
    await harness.count()
    waiting = harness.wait()
    harness.role = PartitionRole.WITHOUT_LEASE
    harness.partition.check_lease()
    assert waiting.result() is Answer.GONE
    assert await harness.count() is Answer.GONE
    harness.clock.skipped_ms = IDLE_MS
    harness.role = PartitionRole.LEADING
    again = harness.wait()
    harness.partition.run(lambda coordinator, now_ms: coordinator.tick(now_ms))
    assert not again.done(), "it was not reachable meanwhile"
    assert harness.look() == 1
    await harness.partition.resign()


async def test_its_timer_runs() -> None:
    harness = await Harness().start()
    waiting = harness.wait()
    harness.partition.inform(lambda coordinator, now_ms: coordinator.resume(now_ms - IDLE_MS))
    assert await asyncio.wait_for(waiting, TIMEOUT_S) is Answer.IDLE
    await harness.partition.resign()


async def test_resigning_answers_all_and_frees_in_slices() -> None:
    harness = await Harness().start()
    await harness.count("a")
    await harness.count("b")
    waiting, counting = harness.wait(), harness.send_count()
    own = harness.partition._coordinator
    await harness.partition.resign()
    assert waiting.result() is Answer.GONE
    assert await asyncio.wait_for(counting, TIMEOUT_S) is Answer.COUNTED, "its record was written"
    await harness.until(lambda: not own.has_work)
    assert not own.counts
    assert not harness.partition.taken


def test_one_that_coordinates_nothing_refuses() -> None:
    clock = WallClock()
    nothing = CoordinatesNothing(StandIns(COUNTERS, clock.now_ms()), clock)
    assert nothing.run("key", lambda coordinator, now_ms: coordinator.look("a")) is Answer.GONE
    assert nothing.partition_of("key") is None
    assert not nothing.partitions
    assert not nothing.leads(0)
