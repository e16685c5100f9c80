"""The groups that a gateway lists, and whether the response says that the list may be incomplete."""

import pytest

from gateway import fan_out
from gateway.coordination.groups.listing import list_groups
from gateway.coordination.partition import coordinator_partition
from gateway.pulsar.errors import ServiceNotReadyError
from protocol.kafka.errors import ErrorCode
from tests.unit.gateway.coordination.groups.group_scene import Scene, group_in, group_scene


async def ids(scene: Scene) -> tuple[ErrorCode, set[str]]:
    error, groups = await list_groups(scene.service.coordinators, (), ())
    return error, {group.group_id for group in groups}


async def test_lists_the_groups_of_its_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "STEP_ITEMS", 1)
    async with group_scene(monkeypatch) as scene:
        topic = scene.catalog.add("t")
        names = {group_in(0), group_in(1)}
        for name in names:
            await scene.commit(name, topic, 1)
        assert await ids(scene) == (ErrorCode.NONE, names)
        scene.fleet.placed = {1}
        await scene.service.coordinators.release_partitions()
        assert await ids(scene) == (ErrorCode.NONE, {group_in(1)})


async def test_a_lapse_of_the_lease_is_not_taken_for_an_empty_list(monkeypatch: pytest.MonkeyPatch) -> None:
    async with group_scene(monkeypatch) as scene:
        await scene.commit("g", scene.catalog.add("t"), 1)
        scene.fleet.holds_lease = False
        assert await ids(scene) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, set())
        scene.fleet.holds_lease = True
        assert await ids(scene) == (ErrorCode.NONE, {"g"})


async def test_a_partition_that_fails_to_load_is_reported_until_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_partition, "PAUSE_FIRST_S", 0.001)
    async with group_scene(monkeypatch, start=False) as scene:
        failing = scene.client.topics[scene.offsets_topic.pulsar_topic(1)]
        failing.open_failures = [ServiceNotReadyError("no bookies")]
        failing.holds = True  # the second attempt fails for a while, too
        await scene.service.start()
        assert scene.service.coordinators.load_failure == "partition 1 of __consumer_offsets fails to load: no bookies"
        await scene.until(lambda: bool(failing.producers))
        assert scene.service.coordinators.load_failure is not None
        failing.holds = False
        failing.producers[-1].confirm()
        await scene.until(lambda: scene.service.coordinators.load_failure is None)


async def test_a_partition_placed_here_while_the_lease_has_run_out_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async with group_scene(monkeypatch) as scene:
        scene.fleet.placed = {1}
        await scene.service.coordinators.release_partitions()
        scene.fleet.placed, scene.fleet.holds_lease = {0, 1}, False
        scene.service.coordinators.follow_placement()
        scene.fleet.holds_lease = True
        groups = scene.service.coordinators
        await scene.until(lambda: groups.run(group_in(0), lambda c, now_ms: c.list_groups().error) == 0)
