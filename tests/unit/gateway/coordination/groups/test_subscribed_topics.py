"""What coordinators know of subscribed topics: only what was looked up, and changes soon."""

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from typing import cast

import pytest

from coordinator.group.consumer.assignment import TopicInfo
from coordinator.topic_regex import InvalidRegexError, matching
from gateway.coordination import expressions
from gateway.coordination.expressions import AT_ONCE
from gateway.coordination.groups import subscribed_topics
from gateway.coordination.groups.subscribed_topics import MAX_LOOKUPS, SubscribedTopics, Subscriptions
from gateway.pulsar.errors import ServiceNotReadyError
from gateway.topics.catalog import TopicCatalog
from gateway.topics.known_topics import TopicListener
from gateway.topics.topic import Topic

TIMEOUT_S = 10.0
NEVER_S = 3_600.0


class FakeCatalog:
    """Topics by name with their partition counts; requests about those in `away` fail."""

    def __init__(self, **topics: int) -> None:
        self.topics = topics
        self.max_age_s = NEVER_S
        self.away = False
        self.seen: set[str] = set()
        self.asked: list[str] = []
        self.listener = TopicListener()

    def cached(self, name: str) -> Topic | None:
        return self._topic(name) if name in self.seen else None

    async def get(self, name: str) -> Topic | None:
        self.asked.append(name)
        if self.away:
            raise ServiceNotReadyError("away")
        if name in self.topics and name not in self.seen:
            self.seen.add(name)
            self.listener.topic_changed(name)
        return self._topic(name)

    async def list_names(self) -> set[str]:
        if self.away:
            raise ServiceNotReadyError("away")
        return set(self.topics)

    def change(self, name: str, partitions: int) -> None:
        """0 deletes the topic."""
        self.topics[name] = partitions
        self.seen.add(name)
        if not partitions:
            del self.topics[name]
        self.listener.topic_changed(name)

    def _topic(self, name: str) -> Topic | None:
        if name not in self.topics:
            return None
        return Topic(name, name, _id(name), self.topics[name], True, {}, 0.0)


def _id(name: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_URL, name)


class Follower:
    """Follows one set of subscriptions, and records the changes."""

    def __init__(self, catalog: FakeCatalog, *names: str, regexes: Collection[str] = (), max_age_s: float = NEVER_S):
        self.catalog = catalog
        catalog.max_age_s = max_age_s
        self.topics = SubscribedTopics(cast(TopicCatalog, catalog))
        self.subscriptions = Subscriptions(names, regexes)
        self.told: asyncio.Queue[set[str]] = asyncio.Queue()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Follower"]:
        self.catalog.listener = self.topics
        task = asyncio.create_task(self.topics.follow(lambda: self.subscriptions, self._tell))
        try:
            yield self
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def _tell(self, names: Collection[str]) -> None:
        self.told.put_nowait(set(names))

    async def next_change(self) -> set[str]:
        return await asyncio.wait_for(self.told.get(), TIMEOUT_S)


async def test_unknown_until_looked_up() -> None:
    topics = Follower(FakeCatalog(t=3)).topics
    assert not topics.is_known("t")
    assert not topics.knows(["t"], None)
    await topics.learn(["t", "nowhere"], [])
    assert topics.knows(["t", "nowhere"], None)
    assert topics.find("t") == TopicInfo(_id("t").bytes, 3)
    assert topics.find("nowhere") is None


async def test_what_pulsar_cannot_tell_stays_unknown() -> None:
    catalog = FakeCatalog(t=3)
    topics = Follower(catalog).topics
    catalog.away = True
    await topics.learn(["t"], [".*"])
    assert not topics.is_known("t")
    assert topics.matching(".*") is None
    catalog.away = False
    await topics.learn(["t"], [".*"])
    assert topics.find("t") is not None
    assert topics.matching(".*") == frozenset({"t"})


async def test_a_regular_expression_needs_the_topics_that_match() -> None:
    topics = Follower(FakeCatalog(t=3, tt=1, u=1)).topics
    assert not topics.knows([], "t+")
    assert await topics.learn([], ["t+"]) == {"t", "tt"}
    assert topics.knows([], "t+")
    assert not topics.knows([], "u")
    assert not topics.is_known("u")
    with pytest.raises(InvalidRegexError):
        topics.knows([], "(")


async def test_changes_are_reported_when_looked_up() -> None:
    async with Follower(FakeCatalog(t=3), regexes=["t.*"]).running() as follower:
        assert await follower.next_change() == {"t"}
        follower.catalog.change("tt", 1)
        assert await follower.next_change() == {"tt"}
        assert follower.topics.knows([], "t.*")
        assert follower.topics.find("tt") is not None
        follower.catalog.change("t", 0)
        assert await follower.next_change() == {"t"}
        assert follower.topics.matching("t.*") == frozenset({"tt"})


async def test_topics_that_others_made_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.coordination.groups.subscribed_topics.LIST_MAX_AGE_S", 0.0)
    async with Follower(FakeCatalog(t=3), regexes=["t.*"], max_age_s=0.0).running() as follower:
        assert await follower.next_change() == {"t"}
        follower.catalog.topics["tt"] = 1
        assert await follower.next_change() == {"tt"}
        assert follower.topics.is_known("tt")


async def test_topics_without_subscribers_are_forgotten() -> None:
    follower = Follower(FakeCatalog(t=3), "t", "nowhere")
    await follower.topics.learn(["nothing"], [])
    async with follower.running():
        assert await follower.next_change() == {"t"}
        assert follower.topics.is_known("nowhere")
        assert not follower.topics.is_known("nothing")


async def test_topics_of_a_first_subscription_stay_known_while_others_are_looked_up() -> None:
    async with Follower(FakeCatalog(t=3, u=1)).running() as follower:
        await follower.topics.learn(["t"], [])
        assert await follower.next_change() == {"t"}
        await follower.topics.learn(["u"], [])
        assert await follower.next_change() == {"u"}
        assert follower.topics.knows(["t", "u"], None)


async def test_a_defect_is_not_the_end() -> None:
    follower = Follower(FakeCatalog(t=3), regexes=["("], max_age_s=0.0)
    async with follower.running():
        await asyncio.sleep(0)
        follower.subscriptions = Subscriptions(["t"], ["t"])
        assert await follower.next_change() == {"t"}


async def test_many_names_are_few_requests() -> None:
    """A member may subscribe to very many topics that do not exist; they are looked up again and again."""
    catalog = FakeCatalog(there=2)
    topics = SubscribedTopics(cast(TopicCatalog, catalog))
    names = ["there", *(f"absent-{number}" for number in range(10 * MAX_LOOKUPS))]
    assert await topics.learn(names, []) == set(names)
    assert all(map(topics.is_known, names))
    assert topics.find("there") == TopicInfo(_id("there").bytes, 2)
    assert catalog.asked == ["there"]
    catalog.away = True
    assert not topics.is_known("other")
    assert await topics.learn([*names, "other"], []) == {*names, "other"}
    assert not topics.is_known("other"), "nothing was learned"


class Matches:
    """Counts the names that are matched, and where."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self.threads: set[int] = set()
        self.while_matching: Callable[[], object] = lambda: None
        monkeypatch.setattr(expressions, "matching", self._matching)

    def _matching(self, regex: str, names: Collection[str]) -> frozenset[str]:
        self.names += names
        self.threads.add(threading.get_ident())
        self.while_matching()
        return matching(regex, names)


async def test_expressions_are_matched_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    matches = Matches(monkeypatch)
    names = {f"t{number}" for number in range(2 * AT_ONCE)}
    topics = SubscribedTopics(cast(TopicCatalog, FakeCatalog(**dict.fromkeys(names, 1))))
    found = {f"t{number}" for number in range(10)}
    assert await topics.learn([], ["t[0-9]"]) == found
    assert topics.knows([], "t[0-9]")
    assert topics.matching("t[0-9]") == frozenset(found)
    assert sorted(matches.names) == sorted(names)
    assert threading.get_ident() not in matches.threads


async def test_only_names_that_come_or_go_are_matched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = FakeCatalog(t1=1, t2=1, u=1)
    topics = SubscribedTopics(cast(TopicCatalog, catalog))
    catalog.listener = topics
    await topics.learn([], ["t.*"])
    matches = Matches(monkeypatch)
    catalog.change("t3", 1)
    catalog.change("t1", 0)
    assert topics.matching("t.*") is None
    assert not topics.knows([], "t.*")
    assert await topics.learn([], ["t.*"]) == {"t2", "t3"}
    assert matches.names == ["t3"]
    catalog.change("t2", 7)
    assert topics.matching("t.*") == frozenset({"t2", "t3"}), "more partitions do not matter"


async def test_a_topic_that_comes_while_an_expression_is_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, loop = FakeCatalog(t1=1), asyncio.get_running_loop()
    topics = SubscribedTopics(cast(TopicCatalog, catalog))
    catalog.listener = topics
    matches, changed = Matches(monkeypatch), threading.Event()

    def change() -> None:
        catalog.change("t2", 1)
        changed.set()

    def add_topic() -> None:
        if not changed.is_set():
            loop.call_soon_threadsafe(change)
            assert changed.wait(TIMEOUT_S)

    matches.while_matching = add_topic
    assert await topics.learn([], ["t.*"]) == {"t1", "t2"}
    assert topics.matching("t.*") == frozenset({"t1", "t2"})


async def test_too_many_changes_to_remember(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribed_topics, "MAX_CHANGES", 2)
    catalog = FakeCatalog(t1=1)
    topics = SubscribedTopics(cast(TopicCatalog, catalog))
    catalog.listener = topics
    await topics.learn([], ["t.*"])
    for number in range(2, 6):
        catalog.change(f"t{number}", 1)
    assert await topics.learn([], ["t.*"]) == {f"t{number}" for number in range(1, 6)}


async def test_expressions_without_subscribers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribed_topics, "MAX_UNSUBSCRIBED", 2)
    async with Follower(FakeCatalog(t=1), regexes=["t"]).running() as follower:
        await follower.next_change()
        for number in range(4):
            await follower.topics.learn([], [f"t{number}?"])
        known = [regex for regex in ("t", "t0?", "t1?", "t2?", "t3?") if follower.topics.knows([], regex)]
        assert known == ["t", "t2?", "t3?"]


async def test_who_asks_for_an_old_result_gets_a_new_one_soon() -> None:
    catalog = FakeCatalog(t=1)
    async with Follower(catalog, regexes=["t.*"]).running() as follower:
        await follower.next_change()
        follower.subscriptions = Subscriptions([], ["t.*", "u.*"])
        assert follower.topics.matching("u.*") is None
        async with asyncio.timeout(TIMEOUT_S):
            while follower.topics.matching("u.*") is None:
                await asyncio.sleep(0.001)
