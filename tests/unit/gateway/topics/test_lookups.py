"""Lookups of single topics: which callers share one, and which answers come too late to count."""

from __future__ import annotations

import asyncio

import pytest

from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.admin.topics import PartitionedTopic, TopicPolicy
from gateway.topics import catalog, known_topics
from gateway.topics.catalog import TopicCatalog
from gateway.topics.topic import Topic
from tests.unit.gateway.log.fake_admin import PREFIX, FakeTopics


class SlowTopics(FakeTopics):
    """Pulsar reads a topic at once, but its answers arrive when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.properties[f"{PREFIX}a"] = {}
        self.policies[f"{PREFIX}a"] = {}
        self.answers: list[asyncio.Event] = []
        self.is_slow = True

    async def partitioned(self, topic: str) -> PartitionedTopic:
        answered = asyncio.Event()
        if not self.is_slow:
            answered.set()
        try:
            found = await super().partitioned(topic)
        finally:
            self.answers.append(answered)
            await answered.wait()
        return found


class Scene:
    def __init__(self) -> None:
        self.pulsar = SlowTopics()
        self.catalog = TopicCatalog(self.pulsar.client, "t/n", 60_000)

    async def look_up(self, *, fresh: bool = True) -> asyncio.Task[Topic | None]:
        """Begins a lookup that Pulsar has read, but not answered."""
        count = len(self.pulsar.answers)
        looking = asyncio.create_task(self.catalog.get("a", fresh=fresh))
        await self.until_read(count + 1)
        return looking

    async def until_read(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.pulsar.answers) < count:
                await asyncio.sleep(0)

    def answer_all(self) -> None:
        self.pulsar.is_slow = False
        for answered in self.pulsar.answers:
            answered.set()


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def test_a_fresh_lookup_does_not_share_one_that_pulsar_has_read_before(scene: Scene) -> None:
    """OffsetFetch would take the topic before a deletion for the present one, and remove the offsets of the new one."""
    early = await scene.look_up()
    scene.pulsar.partitions = 5
    late = [asyncio.create_task(scene.catalog.get("a", fresh=True)) for _ in range(10)]
    await asyncio.sleep(0)
    scene.answer_all()
    assert [topic and topic.partitions for topic in await asyncio.gather(early, *late)] == [2] + [5] * 10
    known = scene.catalog.cached("a")
    assert known is not None and known.partitions == 5
    assert scene.pulsar.requests["partitioned"] == 2, "those who wait share the next one"


async def test_other_lookups_share_the_one_that_runs(scene: Scene) -> None:
    early = await scene.look_up(fresh=False)
    late = asyncio.create_task(scene.catalog.get("a"))
    await asyncio.sleep(0)
    scene.answer_all()
    assert await early is await late
    assert scene.pulsar.requests["partitioned"] == 1


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_topic_that_another_gateway_deleted_is_not_brought_back_by_an_older_answer(
    scene: Scene, is_known: bool
) -> None:
    if is_known:
        scene.catalog._remember(scene.catalog._new_topic("a", 2, {}))
    looking = await scene.look_up()
    del scene.pulsar.properties[f"{PREFIX}a"]
    assert scene.catalog.forget("a", b"")
    scene.answer_all()
    assert await looking is None
    assert scene.catalog.cached("a") is None


async def test_a_topic_that_is_being_deleted_is_not_brought_back_by_a_late_answer(scene: Scene) -> None:
    topic = scene.catalog._remember(scene.catalog._new_topic("a", 2, {}))
    scene.pulsar.may_delete.clear()
    scene.pulsar.is_slow = False
    deleting = asyncio.create_task(scene.catalog.delete(topic))
    await scene.until_read(1)
    scene.pulsar.is_slow = True
    looking = await scene.look_up()
    scene.pulsar.may_delete.set()
    await deleting
    scene.answer_all()
    assert await looking is None
    assert scene.catalog.cached("a") is None


async def test_a_lookup_during_a_deletion_that_fails_finds_the_topic(scene: Scene) -> None:
    """Otherwise the topic would seem to be deleted, and the offsets of groups in it would be removed."""
    topic = scene.catalog._remember(scene.catalog._new_topic("a", 2, {}))
    scene.pulsar.refuses_deletion = True
    looking = await scene.look_up()
    scene.pulsar.is_slow = False
    with pytest.raises(AdminError):
        await scene.catalog.delete(topic)
    scene.answer_all()
    assert await looking is not None
    assert scene.catalog.cached("a") is not None


async def test_lookups_that_wait_for_one_that_looks_again(scene: Scene) -> None:
    """They do not wait for each other."""
    early = await scene.look_up()
    later = asyncio.create_task(scene.catalog.get("a", fresh=True))
    await asyncio.sleep(0)
    scene.catalog.forget("a", b"")
    latest = asyncio.create_task(scene.catalog.get("a"))
    await asyncio.sleep(0)
    scene.catalog.forget("a", b"")
    scene.answer_all()
    async with asyncio.timeout(5):
        found = await asyncio.gather(early, later, latest)
    assert [topic and topic.name for topic in found] == ["a"] * 3
    assert scene.catalog.cached("a") is not None


@pytest.mark.parametrize("refused", [False, True])
async def test_a_topic_that_is_deleted_while_it_is_altered_is_not_brought_back(scene: Scene, refused: bool) -> None:
    """Commits would get the id of the deleted topic, and be lost with it."""
    scene.pulsar.is_slow = False
    deleted = asyncio.Event()
    if refused:
        scene.pulsar.refused[TopicPolicy.RETENTION] = lambda value: True

    async def before(method: str, topic: str) -> None:
        last = "set_policy" if refused else "put_properties"
        if method == last and not deleted.is_set():
            deleted.set()
            scene.catalog.forget("a", b"")

    scene.pulsar.before = before
    altering = scene.catalog.alter_configs("a", lambda _: {"retention.ms": "60000"}, validate_only=False)
    await asyncio.gather(altering, return_exceptions=True)
    assert deleted.is_set()
    assert scene.catalog.cached("a") is None


async def test_a_topic_that_another_gateway_is_deleting(scene: Scene) -> None:
    """Nothing here uses it any more, until the deletion is announced: a new topic may have the name by then."""
    scene.answer_all()
    before = await scene.catalog.get("a")
    assert before is not None
    late = scene.catalog.get("a", fresh=True)
    scene.catalog.hide("a")
    assert scene.catalog.cached("a") is None
    assert await scene.catalog.get("a") is None and await late is None
    assert not (await scene.catalog.all()).topics
    scene.catalog.forget("a", before.topic_id.bytes)
    assert await scene.catalog.get("a") is not None


async def test_a_topic_that_another_gateway_did_not_delete(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.answer_all()
    scene.catalog.hide("a")
    assert await scene.catalog.get("a") is None
    monkeypatch.setattr(known_topics, "HIDDEN_S", 0)
    scene.catalog.hide("a")
    assert await scene.catalog.get("a") is not None


async def test_a_topic_is_found_as_soon_as_another_gateway_fails_to_delete_it(scene: Scene) -> None:
    scene.answer_all()
    scene.catalog.hide("a")
    assert await scene.catalog.get("a") is None
    scene.catalog.show("a")
    assert await scene.catalog.get("a") is not None
    assert [topic.name for topic in (await scene.catalog.all()).topics] == ["a"]


async def test_a_topic_is_created_when_another_gateway_has_deleted_it(scene: Scene) -> None:
    scene.answer_all()
    scene.catalog.hide("b")
    creating = asyncio.create_task(scene.catalog.create("b", 1, {}))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not creating.done(), "Pulsar may be deleting it"
    scene.catalog.forget("b", b"i" * 16)
    await asyncio.wait_for(creating, 5)
    assert await scene.catalog.get("b") is not None


async def test_a_topic_is_created_although_no_deletion_is_announced(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "NEWS_S", 0.01)
    scene.answer_all()
    scene.catalog.hide("b")
    await asyncio.wait_for(scene.catalog.create("b", 1, {}), 5)
    assert scene.catalog.cached("b") is not None
