"""The topics that consumer groups (KIP-848) read, as group coordinators know them, and how this is kept up to date.

The catalog reads a topic from Pulsar when it is requested. `follow` requests every subscribed topic in turn, and so
detects topics and partitions that were not created by this gateway.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import NamedTuple

import structlog

from coordinator.group.consumer.assignment import TopicInfo
from coordinator.topic_regex import matching
from gateway.background import report
from gateway.fan_out import Slices, fan_out
from gateway.pulsar.errors import PulsarError
from gateway.topics.catalog import TopicCatalog
from gateway.topics.known_topics import TopicListener

LIST_MAX_AGE_S = 30.0
"""The maximum age of the list that regular expressions are matched with. Topics created here are added at once."""
MAX_LOOKUPS = 100
"""Topics that are looked up one by one."""
MATCHED_AT_ONCE = 100
"""Names that a regular expression is matched with in one step: less than a millisecond."""

log = structlog.get_logger()


class Subscriptions(NamedTuple):
    """The subscriptions of all consumer groups here: topic names, and regular expressions that RE2 accepts."""

    names: Collection[str]
    regexes: Collection[str]


class SubscribedTopics(TopicListener):
    """The coordinators' `Topics`: topics in the catalog, and topics known to be absent. No other topic is known."""

    def __init__(self, catalog: TopicCatalog) -> None:
        self._catalog = catalog
        self._absent: set[str] = set()
        self._names: set[str] | None = None
        self._listed_at = float("-inf")
        self._listing = asyncio.Lock()
        self._changed: set[str] = set()
        self._news = asyncio.Event()

    def is_known(self, name: str) -> bool:
        return name in self._absent or self._catalog.cached(name) is not None

    def find(self, name: str) -> TopicInfo | None:
        topic = self._catalog.cached(name)
        return None if topic is None else TopicInfo(topic.topic_id.bytes, topic.partitions)

    def names(self) -> Collection[str] | None:
        return self._names

    def knows(self, names: Collection[str], regex: str | None) -> bool:
        """Whether this subscription can be resolved without a request to Pulsar. Raises InvalidRegexError."""
        if regex and self._names is None:
            return False
        matched = matching(regex, self._names or ()) if regex else ()
        return all(map(self.is_known, (*names, *matched)))

    async def learn(self, names: Iterable[str], regexes: Iterable[str]) -> set[str]:
        """Look up the topics of these subscriptions; return their names. Raises InvalidRegexError."""
        wanted = set(names)
        for regex in regexes:
            async with self._listing:
                await self._list()
            wanted |= await _matching_in_slices(regex, self._names or ())
        unknown = [name for name in wanted if self._catalog.cached(name) is None]
        if len(unknown) > MAX_LOOKUPS:
            unknown = await self._listed(unknown)
        await fan_out(self._look_up, unknown)
        return wanted

    async def _listed(self, names: Collection[str]) -> list[str]:
        """Those that exist, and now the others are known to be absent: one listing instead of many requests."""
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

    async def _list(self) -> None:
        if time.monotonic() - self._listed_at < LIST_MAX_AGE_S:
            return
        try:
            names = await self._catalog.list_names()
        except PulsarError as error:
            log.warning("cannot list topics", error=str(error))
            return
        for name in self._changed:  # they may have changed after Pulsar created the list
            _enter(name, names, present=self._catalog.cached(name) is not None)
        self._changed |= names ^ (self._names or set())
        self._names, self._listed_at = names, time.monotonic()

    # Keeping up

    async def follow(self, subscriptions: Callable[[], Subscriptions], tell: Callable[[Collection[str]], None]) -> None:
        """Call `tell` with the names of topics that changed, after they were looked up; runs until cancelled."""
        while True:
            self._news.clear()
            try:
                # Absent topics that no group reads any more are removed.
                self._absent &= await self.learn(*subscriptions())
            except Exception as error:  # a defect of the gateway must not stop the updates of groups
                report("subscribed topics", error)
            changed, self._changed = self._changed, set()
            if changed:
                tell(changed)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._catalog.max_age_s):
                    await self._news.wait()

    def topic_changed(self, name: str) -> None:
        present = self._catalog.cached(name) is not None
        _enter(name, self._absent, present=not present)
        if self._names is not None:
            _enter(name, self._names, present=present)
        self._changed.add(name)
        self._news.set()


async def _matching_in_slices(regex: str, names: Collection[str]) -> set[str]:
    """As `matching`: the names of ten thousand topics take some ten milliseconds, for each expression."""
    found, slices, left = set[str](), Slices(), tuple(names)
    for start in range(0, max(1, len(left)), MATCHED_AT_ONCE):
        await slices.pause()
        found |= matching(regex, left[start : start + MATCHED_AT_ONCE])
    return found


def _enter(name: str, names: set[str], *, present: bool) -> None:
    (names.add if present else names.discard)(name)
