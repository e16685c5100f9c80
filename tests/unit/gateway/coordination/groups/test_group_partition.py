"""Groups find their partition. A partition's coordinator loads, is lost, and returns with all that was durable."""

import asyncio
import uuid
from collections.abc import Callable
from typing import cast

import pytest

from coordinator.fleet.leadership import PartitionRole
from coordinator.group.config import GroupConfig
from coordinator.group.coordinator import GroupCoordinator
from coordinator.group.messages import (
    CommitRequest,
    CommitResponse,
    FetchOffsetsRequest,
    HeartbeatRequest,
    JoinRequest,
    JoinResponse,
    OffsetToCommit,
    SyncRequest,
    SyncResponse,
)
from coordinator.log import Log
from coordinator.topics import TopicPartition
from gateway.coordination.group_partition import BARRIER, GroupPartition
from gateway.coordination.groups.subscribed_topics import SubscribedTopics
from gateway.coordination.partition import coordinator_partition
from gateway.coordination.partition.clock import WallClock
from gateway.coordination.partition.coordinator_partition import CoordinatorPartition
from gateway.coordination.partition.coordinators import partition_of
from gateway.coordination.partition.kind import CoordinatorKind, StandIns
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.errors import RequestTimeoutError, ServiceNotReadyError
from gateway.topics.catalog import TopicCatalog
from protocol.kafka.errors import ErrorCode
from tests.unit.gateway.coordination.partition.fake_internal_topic import FakeInternalTopic, new_trimming

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


class FakeClock(WallClock):
    """Advances by itself, and by `skipped_ms`."""

    skipped_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.skipped_ms


class FakeLeadership:
    def __init__(self) -> None:
        self.mine = self.will_be = True

    def give_away(self) -> None:
        self.mine = self.will_be = False

    def __call__(self) -> PartitionRole:
        if self.mine:
            return PartitionRole.LEADING
        return PartitionRole.TAKING_OVER if self.will_be else PartitionRole.ELSEWHERE


class Harness:
    def __init__(self, topic: FakeInternalTopic | None = None) -> None:
        self.topic = topic or FakeInternalTopic()
        self.leadership = FakeLeadership()
        self.clock = FakeClock()
        kind = CoordinatorKind(self._new_coordinator, BARRIER)
        self.partition: GroupPartition = CoordinatorPartition(
            cast(PulsarClient, self.topic), "t", kind, StandIns(kind, self.clock.now_ms()), self.clock, self.leadership,
            new_trimming(self.topic),
        )  # fmt: skip

    def _new_coordinator(self, log: Log) -> GroupCoordinator:
        topics = SubscribedTopics(cast(TopicCatalog, None))
        return GroupCoordinator(GroupConfig(initial_rebalance_delay_ms=0), log, lambda: str(uuid.uuid4()), topics)

    async def start(self) -> "Harness":
        self.partition.take()
        await asyncio.wait_for(self.partition.tried.wait(), TIMEOUT_S)
        return self

    def send_commit(self, offset: int) -> asyncio.Future[CommitResponse]:
        answer: asyncio.Future[CommitResponse] = asyncio.get_running_loop().create_future()
        request = CommitRequest("g", {T0: OffsetToCommit(offset)})
        self.partition.run(lambda coordinator, now_ms: coordinator.commit_offsets(request, now_ms, answer.set_result))
        return answer

    async def commit(self, offset: int) -> ErrorCode:
        return (await asyncio.wait_for(self.send_commit(offset), TIMEOUT_S))[T0]

    async def send_commits(self, count: int) -> list[asyncio.Future[CommitResponse]]:
        """Each commit has an entry of its own, as far as entries may be in flight."""
        answers = []
        for offset in range(count):
            answers.append(self.send_commit(offset))
            await asyncio.sleep(0)
        return answers

    async def join(self) -> str:
        """Join as the only member of a stable group."""
        joined: asyncio.Future[JoinResponse] = asyncio.get_running_loop().create_future()
        request = JoinRequest("g", "", "c", "/h", 10_000, 60_000, "consumer", [("range", b"")])
        self.partition.run(lambda coordinator, now_ms: coordinator.join(request, now_ms, joined.set_result))
        member_id = (await asyncio.wait_for(joined, TIMEOUT_S)).member_id
        synced: asyncio.Future[SyncResponse] = asyncio.get_running_loop().create_future()
        sync = SyncRequest("g", 1, member_id, {member_id: b"a"})
        self.partition.run(lambda coordinator, now_ms: coordinator.sync(sync, now_ms, synced.set_result))
        assert (await asyncio.wait_for(synced, TIMEOUT_S)).error is ErrorCode.NONE
        return member_id

    def heartbeat(self, member_id: str) -> ErrorCode:
        request = HeartbeatRequest("g", 1, member_id)
        return self.partition.run(lambda coordinator, now_ms: coordinator.heartbeat(request, now_ms))

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


async def test_no_member_is_fenced_without_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_partition, "PAUSE_SUPERSEDED_S", 0)
    monkeypatch.setattr(coordinator_partition, "LAPSED_TICK_S", 0)
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
    monkeypatch.setattr(coordinator_partition, "PAUSE_FIRST_S", 0.001)
    harness = await Harness().start()
    await harness.commit(7)
    harness.topic.open_failures = [ServiceNotReadyError("moving"), ServiceNotReadyError("moving")]
    harness.topic.producers[-1].lose()
    await harness.until(lambda: harness.fetch() == (ErrorCode.NOT_COORDINATOR, None))
    await harness.until(lambda: harness.fetch() == (ErrorCode.NONE, 7))
    assert await harness.commit(8) is ErrorCode.NONE
    await harness.partition.resign()


async def test_a_defect_is_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_partition, "PAUSE_LONGEST_S", 0.001)
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


@pytest.mark.parametrize("pulsar_answers", [True, False])
async def test_every_commit_is_answered_at_a_hand_over(monkeypatch: pytest.MonkeyPatch, pulsar_answers: bool) -> None:
    monkeypatch.setattr(coordinator_partition, "RESIGN_S", 0.01)
    harness = await Harness().start()
    harness.topic.holds, harness.topic.hangs = True, not pulsar_answers
    answers = await harness.send_commits(12)
    harness.leadership.give_away()
    await harness.partition.resign()
    errors = {(await asyncio.wait_for(answer, TIMEOUT_S))[T0] for answer in answers}
    assert errors == ({ErrorCode.NONE, ErrorCode.NOT_COORDINATOR} if pulsar_answers else {ErrorCode.NOT_COORDINATOR})


async def test_a_commit_of_the_moment_of_resigning_is_answered() -> None:
    harness = await Harness().start()
    answer = harness.send_commit(7)
    await harness.partition.resign()
    assert (await asyncio.wait_for(answer, TIMEOUT_S))[T0] is ErrorCode.NONE


async def test_every_commit_is_answered_when_the_partition_is_lost() -> None:
    harness = await Harness().start()
    harness.topic.holds = True
    answers = await harness.send_commits(12)
    harness.topic.producers[-1].lose(RequestTimeoutError("slow"))
    for answer in answers:
        assert (await asyncio.wait_for(answer, TIMEOUT_S))[T0] is ErrorCode.NOT_COORDINATOR
    await harness.partition.resign()


async def test_resigning_ends_though_its_caller_was_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_partition, "RESIGN_S", 0.01)
    harness = await Harness().start()
    await harness.commit(7)
    harness.topic.hangs = True
    resigning = asyncio.create_task(harness.partition.resign())
    await asyncio.sleep(0)
    resigning.cancel()
    harness.partition.take()
    await harness.until(lambda: harness.fetch() == (ErrorCode.NONE, 7))
    harness.topic.hangs = False
    await harness.partition.resign()


async def test_a_lapse_of_the_lease_removes_no_member() -> None:
    harness = await Harness().start()
    member_id = await harness.join()
    harness.leadership.give_away()
    harness.clock.skipped_ms = 9_000
    assert harness.heartbeat(member_id) is ErrorCode.NOT_COORDINATOR
    harness.clock.skipped_ms = 18_000
    harness.leadership.mine = True
    harness.partition.run(lambda coordinator, now_ms: coordinator.tick(now_ms))
    assert harness.heartbeat(member_id) is ErrorCode.NONE
    await harness.partition.resign()


async def test_waiting_members_are_answered_when_the_lease_has_expired() -> None:
    harness = await Harness().start()
    await harness.join()
    joined: asyncio.Future[JoinResponse] = asyncio.get_running_loop().create_future()
    request = JoinRequest("g", "", "c", "/h", 10_000, 60_000, "consumer", [("range", b"")])
    harness.partition.run(lambda coordinator, now_ms: coordinator.join(request, now_ms, joined.set_result))
    assert not joined.done()
    harness.leadership.mine = False
    harness.partition.check_lease()
    assert joined.result().error is ErrorCode.NOT_COORDINATOR
    await harness.partition.resign()
