"""What coordinators know of subscribed topics: only what was looked up, and changes soon."""

import asyncio
import threading
from typing import cast

import pytest

from coordinator.group.consumer.assignment import TopicInfo
from coordinator.group.consumer.messages import ConsumerHeartbeatRequest, ConsumerHeartbeatResponse
from coordinator.topic_regex import InvalidRegexError
from gateway import fan_out
from gateway.coordination.groups import listed_topics, matched_topics
from gateway.coordination.groups.subscribed_topics import MAX_LOOKUPS, SubscribedTopics, Subscriptions
from gateway.topics.catalog import TopicCatalog
from protocol.kafka.errors import ErrorCode
from tests.unit.gateway.coordination.groups.followed_topics import (
    TIMEOUT_S,
    FakeCatalog,
    Follower,
    Matching,
    topic_id,
)
from tests.unit.gateway.coordination.groups.group_scene import Scene, group_scene


async def test_unknown_until_looked_up() -> None:
    topics = Follower(FakeCatalog(t=3)).topics
    assert not topics.is_known("t")
    assert not topics.knows(["t"], None)
    await topics.learn(["t", "nowhere"], None)
    assert topics.knows(["t", "nowhere"], None)
    assert topics.find("t") == TopicInfo(topic_id("t").bytes, 3)
    assert topics.find("nowhere") is None


async def test_what_pulsar_cannot_tell_stays_unknown() -> None:
    catalog = FakeCatalog(t=3)
    topics = Follower(catalog).topics
    catalog.away = True
    await topics.learn(["t"], ".*")
    assert not topics.is_known("t")
    assert topics.matching(".*") is None
    catalog.away = False
    await topics.learn(["t"], ".*")
    assert topics.find("t") is not None
    assert topics.matching(".*") == frozenset({"t"})


async def test_a_regular_expression_needs_the_topics_that_match() -> None:
    topics = Follower(FakeCatalog(t=3, tt=1, u=1)).topics
    assert not topics.knows([], "t+")
    assert await topics.learn([], "t+") == {"t", "tt"}
    assert topics.knows([], "t+")
    assert not topics.knows([], "u")
    assert not topics.is_known("u")
    assert not topics.knows([], "(")
    with pytest.raises(InvalidRegexError):
        await topics.learn([], "(")


async def test_changes_are_reported_when_looked_up() -> None:
    async with Follower(FakeCatalog(t=3), regexes=["t.*"]).running() as follower:
        await follower.told_of("t")
        follower.catalog.change("tt", 1)
        await follower.told_of("tt")
        await follower.until_matched("t.*", "t", "tt")
        assert follower.topics.knows([], "t.*")
        assert follower.topics.find("tt") is not None
        follower.catalog.change("t", 0)
        await follower.told_of("t")
        await follower.until_matched("t.*", "tt")


async def test_topics_that_others_made_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.coordination.groups.listed_topics.LIST_MAX_AGE_S", 0.0)
    async with Follower(FakeCatalog(t=3), regexes=["t.*"], max_age_s=0.0).running() as follower:
        await follower.told_of("t")
        follower.catalog.topics["tt"] = 1
        await follower.until_matched("t.*", "t", "tt")
        assert follower.topics.is_known("tt")


async def test_topics_without_subscribers_are_forgotten() -> None:
    follower = Follower(FakeCatalog(t=3), "t", "nowhere")
    await follower.topics.learn(["nothing"], None)
    async with follower.running():
        await follower.told_of("t")
        assert follower.topics.is_known("nowhere")
        assert not follower.topics.is_known("nothing")


async def test_topics_of_a_first_subscription_stay_known_while_others_are_looked_up() -> None:
    async with Follower(FakeCatalog(t=3, u=1)).running() as follower:
        await follower.topics.learn(["t"], None)
        await follower.told_of("t")
        await follower.topics.learn(["u"], None)
        await follower.told_of("u")
        assert follower.topics.knows(["t", "u"], None)


async def test_a_defect_is_not_the_end() -> None:
    follower = Follower(FakeCatalog(t=3), regexes=["("], max_age_s=0.0)
    async with follower.running():
        await asyncio.sleep(0)
        follower.subscriptions = Subscriptions(["t"], ["t"])
        await follower.told_of("t")


async def test_many_names_are_few_requests() -> None:
    """A member may subscribe to very many topics that do not exist; they are looked up again and again."""
    catalog = FakeCatalog(there=2)
    topics = SubscribedTopics(cast(TopicCatalog, catalog))
    names = ["there", *(f"absent-{number}" for number in range(10 * MAX_LOOKUPS))]
    assert await topics.learn(names, None) == set(names)
    assert all(map(topics.is_known, names))
    assert topics.find("there") == TopicInfo(topic_id("there").bytes, 2)
    assert catalog.asked == ["there"]
    catalog.away = True
    assert not topics.is_known("other")
    assert await topics.learn([*names, "other"], None) == {*names, "other"}
    assert not topics.is_known("other"), "nothing was learned"


async def test_expressions_are_matched_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    matches = Matching(monkeypatch)
    names = {f"t{number}" for number in range(1_000)}
    topics = SubscribedTopics(cast(TopicCatalog, FakeCatalog(**dict.fromkeys(names, 1))))
    found = {f"t{number}" for number in range(10)}
    assert await topics.learn([], "t[0-9]") == found
    assert topics.knows([], "t[0-9]")
    assert topics.matching("t[0-9]") == frozenset(found)
    assert sorted(matches.names) == sorted(names)
    assert threading.get_ident() not in matches.threads


async def test_only_names_that_come_or_go_are_matched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = FakeCatalog(t1=1, t2=1, u=1)
    topics = SubscribedTopics(cast(TopicCatalog, catalog))
    catalog.listener = topics
    await topics.learn([], "t.*")
    matches = Matching(monkeypatch)
    catalog.change("t3", 1)
    catalog.change("t1", 0)
    assert topics.matching("t.*") is None
    assert not topics.knows([], "t.*")
    assert await topics.learn([], "t.*") == {"t2", "t3"}
    assert matches.names == ["t3"]
    catalog.change("t2", 7)
    assert topics.matching("t.*") == frozenset({"t2", "t3"}), "more partitions do not matter"


async def test_a_topic_that_comes_while_an_expression_is_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, loop = FakeCatalog(t1=1), asyncio.get_running_loop()
    topics = SubscribedTopics(cast(TopicCatalog, catalog))
    catalog.listener = topics
    matches, changed = Matching(monkeypatch), threading.Event()

    def change() -> None:
        catalog.change("t2", 1)
        changed.set()

    def add_topic() -> None:
        if not changed.is_set():
            loop.call_soon_threadsafe(change)
            assert changed.wait(TIMEOUT_S)

    matches.while_matching = add_topic
    assert await topics.learn([], "t.*") == {"t1", "t2"}
    assert topics.matching("t.*") == frozenset({"t1", "t2"})


async def test_too_many_changes_to_remember(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed_topics, "MAX_CHANGES", 2)
    catalog = FakeCatalog(t1=1)
    topics = SubscribedTopics(cast(TopicCatalog, catalog))
    catalog.listener = topics
    await topics.learn([], "t.*")
    for number in range(2, 6):
        catalog.change(f"t{number}", 1)
    assert await topics.learn([], "t.*") == {f"t{number}" for number in range(1, 6)}


async def test_expressions_without_subscribers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matched_topics, "MAX_UNSUBSCRIBED", 2)
    async with Follower(FakeCatalog(t=1), regexes=["t"]).running() as follower:
        await follower.until_matched("t", "t")
        for number in range(4):
            await follower.topics.learn([], f"t{number}?")
        known = [regex for regex in ("t", "t0?", "t1?", "t2?", "t3?") if follower.topics.knows([], regex)]
        assert known == ["t", "t2?", "t3?"]


async def test_who_asks_for_an_old_result_gets_a_new_one_soon() -> None:
    catalog = FakeCatalog(t=1)
    async with Follower(catalog, regexes=["t.*"]).running() as follower:
        await follower.until_matched("t.*", "t")
        follower.subscriptions = Subscriptions([], ["t.*", "u.*"])
        assert follower.topics.matching("u.*") is None
        await follower.until_matched("u.*")


async def test_subscriptions_of_many_groups_are_collected_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "SLICE_S", 0.0)
    async with group_scene(monkeypatch) as scene:
        groups = [f"g{number}" for number in range(5)]
        for group in groups:
            await heartbeat(scene, ConsumerHeartbeatRequest(
                group, "m", 0, "c", "/h", rebalance_timeout_ms=1, subscribed_topic_names=[group, "t"],
                subscribed_topic_regex=f"{group}.*", owned={}, has_own_id=True,
            ))  # fmt: skip
        task, turns = asyncio.create_task(scene.service._subscriptions()), 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns > len(groups)
        assert task.result() == ({*groups, "t"}, {f"{group}.*" for group in groups})


async def heartbeat(scene: Scene, request: ConsumerHeartbeatRequest) -> None:
    def answer(response: ConsumerHeartbeatResponse) -> None:
        assert response.error is ErrorCode.NONE

    await scene.service.coordinators.ask(
        request.group_id,
        lambda coordinator, now_ms, reply: coordinator.consumer_heartbeat(request, now_ms, reply),
        answer,
    )
