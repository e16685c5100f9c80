"""A catalog in memory, and a follower of subscribed topics."""

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from typing import cast

import pytest

from coordinator.topic_regex import Matches, matcher
from gateway.coordination import expressions
from gateway.coordination.groups.subscribed_topics import SubscribedTopics, Subscriptions
from gateway.pulsar.errors import ServiceNotReadyError
from gateway.topics.catalog import TopicCatalog
from gateway.topics.known_topics import TopicListener
from gateway.topics.topic import Topic

TIMEOUT_S = 30.0
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
        return Topic(name, name, topic_id(name), self.topics[name], True, {}, 0.0)


def topic_id(name: str) -> uuid.UUID:
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
        task = asyncio.create_task(self.topics.follow(self._subscribed, self._tell))
        try:
            yield self
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _subscribed(self) -> Subscriptions:
        return self.subscriptions

    def _tell(self, names: Collection[str]) -> None:
        self.told.put_nowait(set(names))

    async def next_change(self) -> set[str]:
        return await asyncio.wait_for(self.told.get(), TIMEOUT_S)

    async def told_of(self, *names: str) -> None:
        """Wait for news of these topics. A topic may be told twice: when it is listed, and when it is looked up."""
        left = set(names)
        while left:
            left -= await self.next_change()

    async def until_matched(self, regex: str, *names: str) -> None:
        """Wait until the expression matches these names, and all of them were looked up."""
        async with asyncio.timeout(TIMEOUT_S):
            while self.topics.matching(regex) != frozenset(names) or not self.topics.knows((), regex):
                await asyncio.sleep(0.001)


class Matching:
    """Counts the names that are matched, and where."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self.threads: set[int] = set()
        self.while_matching: Callable[[], object] = lambda: None
        monkeypatch.setattr(expressions, "matcher", self._matcher)

    def _matcher(self, regex: str) -> Matches:
        matches = matcher(regex)
        self.threads.add(threading.get_ident())

        def is_match(name: str) -> bool:
            self.names.append(name)
            self.while_matching()
            return matches(name)

        return is_match
