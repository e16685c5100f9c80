"""Groups find their partition; a partition's coordinator loads, is lost, and comes back with what was durable."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from coordinator.group.config import GroupConfig
from coordinator.group.coordinator import GroupCoordinator
from coordinator.group.messages import CommitRequest, CommitResponse, FetchOffsetsRequest, OffsetToCommit
from coordinator.group.ports import TopicPartition
from gateway.coordination import group_partition
from gateway.coordination.group_partition import GroupPartition, WallClock
from gateway.coordination.group_service import partition_of
from gateway.coordination.subscribed_topics import SubscribedTopics
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import ServiceNotReadyError
from gateway.storage.topics import TopicCatalog
from protocol.kafka.errors import ErrorCode
from tests.unit.gateway.coordination.fake_internal_topic import FakeInternalTopic

T0 = TopicPartition("t", 0)
TIMEOUT_S = 10.0


@pytest.mark.parametrize(
    ("group_id", "java_hash"),
    [
        ("", 0),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("my-group", -1906497762),
        ("é😀", 1996812),
    ],
)
def test_partition_is_that_of_java(group_id: str, java_hash: int) -> None:
    expected = 0 if java_hash == -(2**31) else abs(java_hash) % 50
    assert partition_of(group_id, 50) == expected


class FakeLeadership:
    def __init__(self) -> None:
        self.mine = self.will_be = True

    def give_away(self) -> None:
        self.mine = self.will_be = False

    def is_mine(self) -> bool:
        return self.mine

    def will_be_mine(self) -> bool:
        return self.will_be


class Harness:
    def __init__(self, topic: FakeInternalTopic | None = None) -> None:
        self.topic = topic or FakeInternalTopic()
        self.leadership = FakeLeadership()
        self.partition = GroupPartition(
            cast(PulsarClient, self.topic), "t", GroupConfig(), SubscribedTopics(cast(TopicCatalog, None)), WallClock(),
            self.leadership,
        )  # fmt: skip

    async def start(self) -> "Harness":
        self.partition.take()
        await asyncio.wait_for(self.partition.tried.wait(), TIMEOUT_S)
        return self

    async def commit(self, offset: int) -> ErrorCode:
        answer: asyncio.Future[CommitResponse] = asyncio.get_running_loop().create_future()
        request = CommitRequest("g", {T0: OffsetToCommit(offset)})
        self.partition.run(lambda coordinator, now_ms: coordinator.commit_offsets(request, now_ms, answer.set_result))
        return (await asyncio.wait_for(answer, TIMEOUT_S))[T0]

    def fetch(self) -> tuple[ErrorCode, int | None]:
        request = FetchOffsetsRequest("g", [T0])
        answer = self.partition.run(lambda coordinator, now_ms: coordinator.fetch_offsets(request))
        return answer.error, answer.offsets[T0].offset if answer.offsets else None

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                await asyncio.sleep(0)


async def test_loading_then_serving() -> None:
    harness = Harness()
    assert harness.fetch() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None)
    await harness.start()
    assert await harness.commit(7) is ErrorCode.NONE
    assert harness.fetch() == (ErrorCode.NONE, 7)
    harness.leadership.give_away()
    await harness.partition.resign()
    assert harness.fetch() == (ErrorCode.NOT_COORDINATOR, None)


async def test_next_gateway_has_the_offsets() -> None:
    first = await Harness().start()
    await first.commit(7)
    second = await Harness(first.topic).start()
    assert second.fetch() == (ErrorCode.NONE, 7)
    assert await first.commit(8) is ErrorCode.NOT_COORDINATOR
    await first.until(lambda: first.fetch() == (ErrorCode.NOT_COORDINATOR, None))
    assert second.fetch() == (ErrorCode.NONE, 7)
    await first.partition.resign()
    await second.partition.resign()


async def test_without_the_lease_nothing_is_answered_or_lost() -> None:
    harness = await Harness().start()
    await harness.commit(7)
    harness.leadership.give_away()
    assert harness.fetch() == (ErrorCode.NOT_COORDINATOR, None)
    assert await harness.commit(8) is ErrorCode.NOT_COORDINATOR
    harness.leadership.mine = True
    assert harness.fetch() == (ErrorCode.NONE, 7)
    await harness.partition.resign()


async def test_nobody_is_fenced_without_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_partition, "PAUSE_SUPERSEDED_S", 0)
    monkeypatch.setattr(group_partition, "LAPSED_TICK_S", 0)
    first = await Harness().start()
    first.leadership.give_away()
    second = await Harness(first.topic).start()
    for _ in range(100):
        await asyncio.sleep(0)
    assert await second.commit(8) is ErrorCode.NONE
    first.leadership.mine, second.leadership.mine = True, False
    await first.until(lambda: first.fetch() == (ErrorCode.NONE, 8))
    await first.partition.resign()
    await second.partition.resign()


async def test_waits_for_the_leader_before() -> None:
    harness = Harness()
    harness.leadership.mine = False
    assert harness.fetch() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None)
    await harness.partition.resign()
    assert not harness.topic.producers


async def test_resigned_and_taken_again() -> None:
    harness = await Harness().start()
    await harness.commit(7)
    await asyncio.gather(harness.partition.resign(), harness.partition.resign())
    assert not harness.partition.taken
    await harness.start()
    await harness.until(lambda: harness.fetch() == (ErrorCode.NONE, 7))
    await harness.partition.resign()


async def test_comes_back_after_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_partition, "PAUSE_FIRST_S", 0.001)
    harness = await Harness().start()
    await harness.commit(7)
    harness.topic.open_failures = [ServiceNotReadyError("moving"), ServiceNotReadyError("moving")]
    harness.topic.producers[-1].lose()
    await harness.until(lambda: harness.fetch() == (ErrorCode.NOT_COORDINATOR, None))
    await harness.until(lambda: harness.fetch() == (ErrorCode.NONE, 7))
    assert await harness.commit(8) is ErrorCode.NONE
    await harness.partition.resign()


async def test_a_defect_is_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_partition, "PAUSE_LONGEST_S", 0.001)
    harness = Harness()
    original, failures = GroupCoordinator.replay, [KeyError("defect")]

    def replay(coordinator: GroupCoordinator, key: bytes, value: bytes | None) -> None:
        if failures:
            raise failures.pop()
        original(coordinator, key, value)

    monkeypatch.setattr(GroupCoordinator, "replay", replay)
    await harness.start()
    await harness.until(lambda: harness.fetch() == (ErrorCode.NONE, -1))
    await harness.partition.resign()


async def test_foreign_records_do_not_stop_loading() -> None:
    harness = Harness()
    await harness.start()
    await harness.commit(7)
    await harness.partition.resign()
    foreign = b"\x00\x00\x00\x00"  # a message without key
    harness.topic.write(foreign, 1)
    again = await Harness(harness.topic).start()
    assert again.fetch() == (ErrorCode.NONE, 7)
    await again.partition.resign()
