"""Committed offsets are deleted with their topic, also when a client leaves, a request fails or a group is loading."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.topics import DeletedTopic
from gateway.background import to_the_end
from gateway.coordination.groups import group_service
from gateway.errors import KafkaError
from gateway.handlers.groups import offset_fetch
from gateway.handlers.topics import delete_topics
from gateway.pulsar.errors import RequestTimeoutError, ServiceNotReadyError
from gateway.requests.cluster import Cluster
from gateway.topics.catalog import TopicCatalog
from gateway.topics.topic import Topic
from protocol.kafka.errors import ErrorCode
from tests.unit.gateway.coordination.groups.group_scene import Scene, group_scene
from tests.unit.gateway.log.fake_admin import FakeTopics as PulsarTopics


class FakeLogs:
    async def forget_topic(self, name: str) -> None:
        pass


class FakeTopics:
    """Deletes when the test says so."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None

    async def delete(self, topic: Topic, when_hidden: Callable[[], Awaitable[None]]) -> None:
        await when_hidden()
        self.begun.set()
        await self.go_on.wait()
        self.scene.catalog.present.pop(topic.name)
        self.scene.catalog.known.pop(topic.name)
        if self.error is not None:
            raise self.error

    async def change(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        await to_the_end(what, work, KafkaError)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.scene.catalog, name)


def call(scene: Scene, topics: Any, request: Any = None, version: int = 6) -> Any:
    groups = scene.service
    cluster = SimpleNamespace(logs=FakeLogs(), topics=topics, groups=groups.coordinators, group_service=groups)
    fake = SimpleNamespace(
        cluster=cast(Cluster, cluster), topics=topics, count_error=lambda code: None, request=request, version=version,
        charge_mutations=lambda partitions: None,
    )  # fmt: skip
    return cast(Any, fake)


def delete_request(name: str) -> Any:
    return SimpleNamespace(topics=[SimpleNamespace(name=name, topic_id=None)], timeout_ms=30_000)


async def test_a_deletion_continues_when_its_client_disconnects(monkeypatch: pytest.MonkeyPatch) -> None:
    async with group_scene(monkeypatch) as scene:
        topic = scene.catalog.add("t")
        await scene.commit("g", topic, 7)
        topics = FakeTopics(scene)
        handling = asyncio.create_task(cast(Any, delete_topics.handle(call(scene, topics, delete_request("t")))))
        await topics.begun.wait()
        handling.cancel()
        await asyncio.gather(handling, return_exceptions=True)
        topics.go_on.set()
        await scene.until(lambda: scene.committed("g", "t") is None)
        assert [each.topic_id for each in scene.fleet.announced] == [topic.topic_id.bytes]


async def test_a_deletion_that_ends_after_its_time_takes_the_offsets_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with group_scene(monkeypatch) as scene:
        await scene.commit("g", scene.catalog.add("t"), 7)
        topics = FakeTopics(scene)
        topics.error = RequestTimeoutError("slow")
        topics.go_on.set()
        response = await cast(Any, delete_topics.handle(call(scene, topics, delete_request("t"))))
        assert response.responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        await scene.until(lambda: scene.committed("g", "t") is None)
        assert scene.fleet.announced


async def test_offsets_of_a_topic_that_stays_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_service, "DELETION_CHECK_S", 0)
    async with group_scene(monkeypatch) as scene:
        topic = scene.catalog.add("t")
        await scene.commit("g", topic, 7)
        scene.catalog.failures = [ServiceNotReadyError("busy")]
        await scene.service.deletion_failed(topic)
        assert scene.committed("g", "t") == 7
        assert not scene.fleet.announced


async def test_offsets_stay_while_another_deletion_of_the_topic_may_still_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients do not see the topic meanwhile. The client has tried again after a deletion that failed."""
    monkeypatch.setattr(group_service, "DELETION_CHECKS", 1)
    monkeypatch.setattr(group_service, "DELETION_CHECK_S", 0)
    async with group_scene(monkeypatch) as scene:
        pulsar = PulsarTopics()
        catalog = scene.service._topics = TopicCatalog(pulsar.client, "t/n", 60_000)
        topic = await catalog.create("t", 1, {})
        await scene.commit("g", topic, 7)
        pulsar.may_delete.clear()
        again = asyncio.create_task(catalog.delete(topic))
        await scene.until(lambda: catalog.cached("t") is None)
        await scene.service.deletion_failed(topic)
        assert scene.committed("g", "t") == 7
        pulsar.may_delete.set()
        await again
        await scene.service.deletion_failed(topic)
        assert scene.committed("g", "t") is None


async def test_a_partition_that_is_loaded_later_gets_deletions(monkeypatch: pytest.MonkeyPatch) -> None:
    async with group_scene(monkeypatch) as scene:
        topic = scene.catalog.add("t")
        await scene.commit("g", topic, 7)
        scene.fleet.placed = set()
        await scene.service.coordinators.release_partitions()
        scene.service.forget_topics([DeletedTopic("t", topic.topic_id.bytes, 0)])
        scene.fleet.placed = {0, 1}
        scene.service.coordinators.follow_placement()
        await scene.until(lambda: scene.service.coordinators.run("g", lambda c, now_ms: c.list_groups().error) == 0)
        await scene.until(lambda: scene.committed("g", "t") is None)


async def fetch(scene: Scene, *, all_topics: bool = False) -> tuple[int, int]:
    row = SimpleNamespace(name="t", partition_indexes=[0])
    group = SimpleNamespace(group_id="g", topics=None if all_topics else [row], member_id=None, member_epoch=-1)
    request = SimpleNamespace(groups=[group], require_stable=False)
    response: Any = await offset_fetch.handle(call(scene, scene.catalog, request, 9)).result()
    [found] = response.groups
    return found.error_code, found.topics[0].partitions[0].committed_offset if found.topics else -1


async def test_a_topic_made_anew_does_not_inherit_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    async with group_scene(monkeypatch) as scene:
        await scene.commit("g", scene.catalog.add("t"), 7)
        assert await fetch(scene) == (ErrorCode.NONE, 7)
        scene.catalog.add("t")
        assert await fetch(scene) == (ErrorCode.NONE, -1)
        await scene.until(lambda: scene.committed("g", "t") is None)


async def test_a_request_for_all_offsets_has_no_topic_looked_up_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async with group_scene(monkeypatch) as scene:
        await scene.commit("g", scene.catalog.add("t"), 7)
        scene.catalog.asked.clear()
        assert await fetch(scene, all_topics=True) == (ErrorCode.NONE, 7)
        assert scene.catalog.asked == []
        scene.catalog.add("t")
        assert await fetch(scene, all_topics=True) == (ErrorCode.NONE, -1)


async def test_a_commit_is_not_lost_because_the_catalog_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    async with group_scene(monkeypatch) as scene:
        old = scene.catalog.add("t")
        await scene.commit("g", scene.catalog.add("t"), 7)
        scene.catalog.known["t"] = old
        assert await fetch(scene) == (ErrorCode.NONE, 7)
        scene.catalog.known["t"] = old
        scene.catalog.failures = [ServiceNotReadyError("busy")]
        assert (await fetch(scene))[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
