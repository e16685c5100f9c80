"""Markers in partitions of `__consumer_offsets`: which gateway answers, and that they are stored before the answer."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.group.messages import CommitResponse, EndOfTransaction, OffsetToCommit, TransactionalCommitRequest
from coordinator.topics import TopicPartition
from gateway.coordination.groups.group_markers import write_group_marker
from gateway.coordination.groups.group_service import GroupService
from gateway.coordination.groups.group_transactions import group_transactions
from gateway.coordination.partition.coordinators import partition_of
from protocol.kafka.errors import ErrorCode
from tests.unit.gateway.coordination.groups.group_scene import PARTITIONS, TIMEOUT_S, Scene, group_in, group_scene

COMMIT = EndOfTransaction(7, 0, 1, True, 1)
AGAIN = ErrorCode.NOT_LEADER_OR_FOLLOWER
GROUP = group_in(1)


async def commit(scene: Scene) -> ErrorCode:
    """Commit an offset in a transaction."""
    partition = TopicPartition("t", 0)
    request = TransactionalCommitRequest(
        GROUP, {partition: OffsetToCommit(5)}, producer_id=COMMIT.producer_id, producer_epoch=COMMIT.producer_epoch
    )
    coordinators = scene.service.coordinators
    verification = coordinators.run(GROUP, lambda coordinator, now_ms: coordinator.start_verification(GROUP, 7, 0))

    def error(answer: CommitResponse) -> ErrorCode:
        return answer[partition]

    answer = coordinators.ask(
        GROUP,
        lambda coordinator, now_ms, reply: coordinator.commit_in_transaction(request, verification, now_ms, reply),
        error,
    )
    return await asyncio.wait_for(answer, TIMEOUT_S)


async def write(service: GroupService, partition: int, marker: EndOfTransaction = COMMIT) -> ErrorCode:
    return await asyncio.wait_for(write_group_marker(service.coordinators, partition, marker), TIMEOUT_S)


async def test_it_ends_the_transaction_in_its_partition_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert partition_of(GROUP, PARTITIONS) == 1
    async with group_scene(monkeypatch) as scene:
        assert await commit(scene) is ErrorCode.NONE
        assert await write(scene.service, 0) is ErrorCode.NONE
        assert scene.committed(GROUP, "t") is None
        assert await write(scene.service, 1) is ErrorCode.NONE
        assert scene.committed(GROUP, "t") == 5


async def test_what_was_answered_is_there_after_a_takeover(monkeypatch: pytest.MonkeyPatch) -> None:
    async with group_scene(monkeypatch) as scene:
        await commit(scene)
        await write(scene.service, 1)
        successor = scene.new_service()
        await successor.start()
        try:
            scene.service, old = successor, scene.service
            assert scene.committed(GROUP, "t") == 5
            assert await write(successor, 1) is ErrorCode.NONE
            await old.stop()
        finally:
            await successor.stop()


@pytest.mark.parametrize("partition", [-1, PARTITIONS])
async def test_a_partition_that_is_not(monkeypatch: pytest.MonkeyPatch, partition: int) -> None:
    async with group_scene(monkeypatch) as scene:
        assert await write(scene.service, partition) is AGAIN


async def test_not_before_the_topic_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async with group_scene(monkeypatch, start=False) as scene:
        assert await write(scene.service, 1) is AGAIN


async def test_not_without_leadership(monkeypatch: pytest.MonkeyPatch) -> None:
    async with group_scene(monkeypatch) as scene:
        await commit(scene)
        scene.fleet.holds_lease = False
        assert await write(scene.service, 1) is AGAIN
        scene.fleet.holds_lease = True
        scene.fleet.placed = {0}
        assert await write(scene.service, 1) is AGAIN


async def test_a_marker_under_way_is_answered_when_the_partition_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with group_scene(monkeypatch) as scene:
        await commit(scene)
        writing = asyncio.ensure_future(write(scene.service, 1))
        await asyncio.sleep(0)
        scene.fleet.placed = {0}
        await scene.service.coordinators.release_partitions()
        assert await writing in (ErrorCode.NONE, AGAIN)


async def test_what_is_open_is_found_where_it_is_led(monkeypatch: pytest.MonkeyPatch) -> None:
    async with group_scene(monkeypatch) as scene:
        await commit(scene)
        (_, empty), (place, found) = group_transactions(scene.service.coordinators.partitions)
        assert place == TopicPartition("__consumer_offsets", 1)
        assert (empty.opened(), found.opened()) == ([], [(7, 0, 1)])
        assert not found.is_suspected(7, 1)
        found.suspect_hanging(7)
        assert (found.is_suspected(7, 1), found.is_suspected(7, 2), found.is_suspected(8, 1)) == (True, False, False)
        assert found.coordinator_epoch(7) == -1
        scene.fleet.placed = {0}
        assert (found.opened(), found.is_suspected(7, 1)) == ([], False)
