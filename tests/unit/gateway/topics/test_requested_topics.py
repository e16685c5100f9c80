"""Requests that name very many topics: one listing in place of many look-ups, and answers that are as correct."""

from __future__ import annotations

import asyncio

import pytest

from gateway.fan_out import fan_out
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.errors import PulsarError, RequestTimeoutError
from gateway.topics.catalog import TopicCatalog
from gateway.topics.requested_topics import LISTED_PER_LOOKUP, MIN_LOOKUPS, RequestedTopics
from gateway.topics.topic import Topic
from tests.unit.gateway.log.fake_admin import PREFIX, FakeTopics

MANY = 1_000
ABSENT = [f"absent{number}" for number in range(MANY)]


class Scene:
    def __init__(self, *, timeout_ms: int = 5_000) -> None:
        self.pulsar = FakeTopics()
        self.catalog = TopicCatalog(self.pulsar.client, "t/n", 60_000, timeout_ms=timeout_ms)

    def add(self, *names: str) -> None:
        for name in names:
            self.pulsar.properties[PREFIX + name] = {}
            self.pulsar.policies[PREFIX + name] = {}

    async def found(self, names: list[str], *, fresh: bool = False) -> list[str]:
        """The names of those topics that a new request finds."""
        topics = RequestedTopics(self.catalog)
        found = await fan_out(lambda name: topics.get(name, fresh=fresh), names)
        return [topic.name for topic in found if topic is not None]

    @property
    def look_ups(self) -> int:
        return self.pulsar.requests["partitioned"]

    @property
    def listings(self) -> int:
        return self.pulsar.requests["list_topics"]


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize("fresh", [False, True])
async def test_very_many_absent_topics_cost_one_listing(scene: Scene, fresh: bool) -> None:
    scene.add("first", "last")
    assert await scene.found(["first", *ABSENT, "last"], fresh=fresh) == ["first", "last"]
    assert scene.listings == 1
    assert scene.look_ups == MIN_LOOKUPS + 1, "and one for the listed topic"


async def test_some_topics_are_looked_up(scene: Scene) -> None:
    assert await scene.found(ABSENT[:MIN_LOOKUPS]) == []
    assert (scene.look_ups, scene.listings) == (MIN_LOOKUPS, 0)


async def test_a_listing_of_many_topics_has_to_save_more_look_ups(scene: Scene) -> None:
    known = 10 * LISTED_PER_LOOKUP
    scene.add(*(f"t{number}" for number in range(known)))
    await scene.catalog.list_names()
    scene.pulsar.requests.clear()
    assert await scene.found(ABSENT) == []
    assert (scene.look_ups, scene.listings) == (MIN_LOOKUPS + 10, 1)


async def test_cached_topics_need_no_request(scene: Scene) -> None:
    names = [f"t{number}" for number in range(MANY)]
    scene.add(*names)
    await scene.catalog.all()
    scene.pulsar.requests.clear()
    assert await scene.found(names) == names
    assert not scene.pulsar.requests


class SlowListings:
    """Pulsar reads the names at once, but its answer comes when the test says so."""

    def __init__(self, scene: Scene) -> None:
        self.has_read, self.may_answer = asyncio.Event(), asyncio.Event()
        self._usual = scene.pulsar.list_partitioned
        scene.pulsar.list_partitioned = self._list  # type: ignore[method-assign]

    async def _list(self, namespace: str) -> list[str]:
        names = await self._usual(namespace)
        self.has_read.set()
        await self.may_answer.wait()
        return names


async def test_a_topic_that_was_created_before_the_request_is_found(scene: Scene) -> None:
    """Although there is a recent listing, and another one under way that has not seen it."""
    await scene.catalog.list_names()
    slow = SlowListings(scene)
    everything = asyncio.create_task(scene.catalog.all())
    await slow.has_read.wait()
    scene.add("new")
    asking = asyncio.create_task(scene.found([*ABSENT, "new"]))
    await until_waiting(scene, 1)
    slow.may_answer.set()
    assert await asking == ["new"]
    assert (await everything).topics == []


async def until_waiting(scene: Scene, requests: int) -> None:
    """Until all requests have used up their look-ups, and wait for a listing."""
    async with asyncio.timeout(20):
        while scene.look_ups < requests * MIN_LOOKUPS or scene.catalog._refreshing:
            await asyncio.sleep(0)


async def test_requests_that_wait_share_a_listing(scene: Scene) -> None:
    scene.add("t")
    slow = SlowListings(scene)
    listing = asyncio.create_task(scene.catalog.list_names())
    await slow.has_read.wait()
    names = [[f"{name}-{number}" for name in ABSENT] for number in range(10)]
    asking = [asyncio.create_task(scene.found([*each, "t"])) for each in names]
    await until_waiting(scene, len(asking))
    slow.may_answer.set()
    assert await asyncio.gather(*asking) == [["t"]] * 10
    await listing
    assert scene.listings == 2, "the one that ran before, and one for all of them"


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_late_announcement_of_a_deletion_hides_no_listed_topic(scene: Scene, is_new: bool) -> None:
    if is_new:
        scene.add("t")
    topics = RequestedTopics(scene.catalog)
    await fan_out(topics.get, ABSENT)
    scene.catalog.forget("t", b"the id of the topic before")
    assert (await topics.get("t") is not None) == is_new


async def test_a_topic_that_is_created_here_after_the_listing_is_found(scene: Scene) -> None:
    topics = RequestedTopics(scene.catalog)
    await fan_out(topics.get, ABSENT)
    created = await scene.catalog.create("new", 2, {})
    assert await topics.get("new") == created


async def test_a_topic_that_is_deleted_after_the_listing_is_not_found(scene: Scene) -> None:
    scene.add("t")
    topics = RequestedTopics(scene.catalog)
    await fan_out(topics.get, ABSENT)
    del scene.pulsar.properties[f"{PREFIX}t"]
    assert await topics.get("t") is None


@pytest.mark.parametrize("status", [401, 403, 500])
async def test_without_the_right_to_list_topics_each_one_is_looked_up(scene: Scene, status: int) -> None:
    scene.add("t")

    async def refuse_to_list(method: str, topic: str) -> None:
        await asyncio.sleep(0)
        if method.startswith("list"):
            raise AdminError(status, "Don't have permission to administrate resources on this tenant")

    scene.pulsar.before = refuse_to_list
    assert await scene.found([*ABSENT, "t"]) == ["t"]
    assert scene.look_ups == MANY + 1
    assert scene.pulsar.requests["list_partitioned"] == 1, "once for the request"


async def asked_all(topics: RequestedTopics, names: list[str]) -> list[Topic | PulsarError | None]:
    async def ask(name: str) -> Topic | PulsarError | None:
        try:
            return await topics.get(name)
        except PulsarError as error:
            return error

    return await fan_out(ask, names)


async def test_while_pulsar_is_away_few_look_ups_are_waited_for() -> None:
    scene = Scene(timeout_ms=10)

    async def hang(method: str, topic: str) -> None:
        await asyncio.Event().wait()

    scene.pulsar.before = hang
    found = await asked_all(RequestedTopics(scene.catalog), ABSENT)
    assert {type(each) for each in found} == {RequestTimeoutError}
    assert len(scene.catalog._next) + len(scene.catalog._refreshing) < MANY / 4, "the others were not asked for"
    await scene.catalog.close()


async def test_topics_that_cannot_be_looked_up_do_not_hinder_the_others() -> None:
    scene = Scene(timeout_ms=500)
    names = [f"t{number}" for number in range(200)]
    scene.add(*names)
    unreadable = set(names[7::40])

    async def before(method: str, topic: str) -> None:
        await asyncio.sleep(0)
        if topic.removeprefix(PREFIX) in unreadable:
            await asyncio.Event().wait()

    scene.pulsar.before = before
    found = await asked_all(RequestedTopics(scene.catalog), names)
    assert {each.name for each in found if isinstance(each, Topic)} == set(names) - unreadable
    await scene.catalog.close()


async def test_partitions_that_do_not_exist_cost_one_look_up(scene: Scene) -> None:
    scene.add("t")
    await scene.catalog.get("t")
    scene.pulsar.requests.clear()
    topics = RequestedTopics(scene.catalog)
    for partition in range(2, MANY):
        topic = await topics.with_partition("t", partition)
        assert topic is not None and topic.partitions <= partition
    assert scene.look_ups == 1
