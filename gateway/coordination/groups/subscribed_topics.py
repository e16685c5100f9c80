"""The topics that consumer groups (KIP-848) read, as group coordinators know them, and how this is kept up to date.

The catalog reads a topic from Pulsar when it is requested. `follow` requests every subscribed topic in turn, and so
detects topics and partitions that were not created by this gateway. Groups that name their topics learn of changes
first: regular expressions may take long, and are matched meanwhile (`matched_topics`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from typing import NamedTuple

import structlog

from coordinator.group.consumer.assignment import TopicInfo
from coordinator.topic_regex import InvalidRegexError
from gateway.background import TaskGroup, report
from gateway.coordination.groups.listed_topics import ListedTopics
from gateway.coordination.groups.matched_topics import MatchedTopics
from gateway.fan_out import Slices, fan_out, sliced
from gateway.pulsar.errors import PulsarError
from gateway.topics.catalog import TopicCatalog
from gateway.topics.known_topics import TopicListener

MAX_LOOKUPS = 100
"""Topics that are looked up one by one."""
MATCHED_AT_ONCE = 64
"""Expressions that are matched at the same time, in turns."""
PAUSE_S = 0.05
"""Between two rounds of `follow`: each asks all groups for their subscriptions."""

log = structlog.get_logger()


class Subscriptions(NamedTuple):
    """The subscriptions of all consumer groups here: topic names, and regular expressions."""

    names: Collection[str]
    regexes: Collection[str]


class SubscribedTopics(TopicListener):
    """The coordinators' `Topics`: topics in the catalog, and topics known to be absent. No other topic is known."""

    def __init__(self, catalog: TopicCatalog) -> None:
        self._catalog = catalog
        self._absent: set[str] = set()
        self._listed = ListedTopics(catalog, self._list_changed)
        self._matched = MatchedTopics(self._listed)
        self._changed: set[str] = set()
        self._wake_up = asyncio.Event()
        self._subscribed: Collection[str] = ()
        """The expressions of all groups here, when `follow` last asked."""
        self._due: dict[str, None] = {}
        """The expressions that are to be matched, in order."""
        self._workers = 0

    def is_known(self, name: str) -> bool:
        return name in self._absent or self._catalog.cached(name) is not None

    def find(self, name: str) -> TopicInfo | None:
        topic = self._catalog.cached(name)
        return None if topic is None else TopicInfo(topic.topic_id.bytes, topic.partitions)

    def matching(self, regex: str) -> frozenset[str] | None:
        """None if topics were created or deleted since the expression was matched: `follow` then matches it again.

        It is also None for an expression that is refused by now: the group keeps the topics that it has.
        """
        found = self._matched.current(regex)
        if found is None and not self._matched.is_refused(regex):
            self._wake_up.set()
        return found

    def knows(self, names: Collection[str], regex: str | None) -> bool:
        """Whether this subscription can be resolved without a request to Pulsar or work for its expression."""
        matched = self._matched.current(regex) if regex else frozenset[str]()
        return matched is not None and all(map(self.is_known, (*names, *matched)))

    async def learn(self, names: Iterable[str], regex: str | None) -> set[str]:
        """Look up the topics of this subscription; return their names. Raises InvalidRegexError."""
        wanted = set(names)
        if regex:
            wanted |= await self._matched.match(regex, self._subscribed)
        await self._look_up_all(wanted)
        return wanted

    async def _look_up_all(self, names: Collection[str]) -> None:
        unknown = [name async for name in sliced(names) if self._catalog.cached(name) is None]
        if len(unknown) > MAX_LOOKUPS:
            unknown = await self._existing(unknown)
        await fan_out(self._look_up, unknown)

    async def _existing(self, names: Collection[str]) -> list[str]:
        """The names that exist; the others are known to be absent then. One listing instead of many requests."""
        try:
            existing = await self._catalog.list_names()
        except PulsarError as error:
            log.warning("cannot list topics", error=str(error))
            return []
        self._absent.update(name for name in names if name not in existing)
        return [name for name in names if name in existing]

    async def _look_up(self, name: str) -> None:
        try:
            if await self._catalog.get(name) is None:
                self._absent.add(name)
        except PulsarError as error:
            log.warning("cannot look up subscribed topic", topic=name, error=str(error))

    # Following changes

    async def follow(
        self, subscriptions: Callable[[], Awaitable[Subscriptions]], on_changed: Callable[[Collection[str]], None]
    ) -> None:
        """Call `on_changed` with the names of topics that changed, after they were looked up; runs until cancelled."""
        matching = TaskGroup()
        self._workers = 0
        try:
            while True:
                self._wake_up.clear()
                try:
                    await self._follow_once(await subscriptions(), on_changed, matching)
                except Exception as error:  # a defect of the gateway must not stop the updates of groups
                    report("subscribed topics", error)
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._catalog.max_age_s):
                        await self._wake_up.wait()
                await asyncio.sleep(PAUSE_S)
        finally:
            await matching.close()

    async def _follow_once(
        self, subscriptions: Subscriptions, on_changed: Callable[[Collection[str]], None], matching: TaskGroup
    ) -> None:
        names, self._subscribed = subscriptions
        self._matched.forget_all_but(self._subscribed)
        wanted = await self.learn(names, None)
        self._report_changes(on_changed)
        self._start_matching(matching)
        slices = Slices()
        for regex in self._subscribed:
            await slices.pause()
            wanted |= self._matched.last(regex)
        await self._look_up_all(wanted)
        self._absent &= wanted  # Absent topics that no group reads any more are removed.
        self._report_changes(on_changed)

    def _report_changes(self, on_changed: Callable[[Collection[str]], None]) -> None:
        changed, self._changed = self._changed, set()
        if changed:
            on_changed(changed)

    def _start_matching(self, matching: TaskGroup) -> None:
        is_old = self._listed.is_old
        for regex in self._subscribed:
            if (is_old or self._matched.current(regex) is None) and not self._matched.is_refused(regex):
                self._due[regex] = None
        for _ in range(min(MATCHED_AT_ONCE - self._workers, len(self._due))):
            self._workers += 1
            matching.run_once("topics of regular expressions", self._match_due())

    async def _match_due(self) -> None:
        try:
            while self._due:
                regex = next(iter(self._due))
                del self._due[regex]
                try:
                    await self.learn((), regex)
                except InvalidRegexError as error:  # its group was loaded, or there are more topics than before
                    if not self._matched.is_refused(regex):
                        self._matched.refuse(regex, error)
        finally:
            self._workers -= 1

    def _list_changed(self, changed: Collection[str]) -> None:
        self._changed |= set(changed)
        self._wake_up.set()

    def topic_changed(self, name: str) -> None:
        present = self._catalog.cached(name) is not None
        if present:
            self._absent.discard(name)
        else:
            self._absent.add(name)
        self._listed.topic_changed(name, present=present)
        self._changed.add(name)
        self._wake_up.set()
