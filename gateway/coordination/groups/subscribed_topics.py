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
from coordinator.topic_regex import check
from gateway.background import report
from gateway.coordination.expressions import matching_names
from gateway.fan_out import Slices, fan_out
from gateway.pulsar.errors import PulsarError
from gateway.topics.catalog import TopicCatalog
from gateway.topics.known_topics import TopicListener

LIST_MAX_AGE_S = 30.0
"""The maximum age of the list that regular expressions are matched with. Topics created here are added at once."""
MAX_LOOKUPS = 100
"""Topics that are looked up one by one."""
MAX_UNSUBSCRIBED = 100
"""Expressions that are remembered although no group subscribes to them, or not yet."""
MAX_CHANGES = 10_000
"""Topics that may come and go until all expressions are matched anew with all names."""

log = structlog.get_logger()


class Subscriptions(NamedTuple):
    """The subscriptions of all consumer groups here: topic names, and regular expressions that RE2 accepts."""

    names: Collection[str]
    regexes: Collection[str]


class _Matched(NamedTuple):
    """What an expression matched among the names of a version."""

    names: frozenset[str]
    version: int


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
        self._version = 0
        """Of `_names`: the number of changes."""
        self._changes: dict[str, int] = {}
        """The versions that last changed these names, all after `_changes_since`."""
        self._changes_since = 0
        self._matched: dict[str, _Matched] = {}
        """By expression."""
        self._subscribed: Collection[str] = ()
        """The expressions of all groups here, when `follow` last asked."""

    def is_known(self, name: str) -> bool:
        return name in self._absent or self._catalog.cached(name) is not None

    def find(self, name: str) -> TopicInfo | None:
        topic = self._catalog.cached(name)
        return None if topic is None else TopicInfo(topic.topic_id.bytes, topic.partitions)

    def matching(self, regex: str) -> frozenset[str] | None:
        """None if topics have come or gone since the expression was matched: `follow` then matches it anew."""
        found = self._current(regex)
        if found is None:
            self._news.set()
        return found

    def _current(self, regex: str) -> frozenset[str] | None:
        matched = self._matched.get(regex)
        return None if matched is None or matched.version < self._version else matched.names

    def knows(self, names: Collection[str], regex: str | None) -> bool:
        """Whether this subscription can be resolved without a request to Pulsar. Raises InvalidRegexError."""
        matched: frozenset[str] | None = frozenset()
        if regex:
            check(regex)
            matched = self._current(regex)
        return matched is not None and all(map(self.is_known, (*names, *matched)))

    async def learn(self, names: Iterable[str], regexes: Iterable[str]) -> set[str]:
        """Look up the topics of these subscriptions; return their names. Raises InvalidRegexError."""
        wanted, slices = set(names), Slices()
        for regex in regexes:
            await slices.pause()
            async with self._listing:
                await self._list()
            wanted |= await self._match(regex)
        unknown = [name for name in wanted if self._catalog.cached(name) is None]
        if len(unknown) > MAX_LOOKUPS:
            unknown = await self._listed(unknown)
        await fan_out(self._look_up, unknown)
        return wanted

    async def _match(self, regex: str) -> frozenset[str]:
        """Names that come and go meanwhile are matched in the next round. Raises InvalidRegexError."""
        matched = self._matched.get(regex)
        if matched is not None and matched.version == self._version:
            return matched.names
        while matched is None or matched.version < self._version:
            version, names = self._version, self._names
            if names is None:
                return frozenset()
            kept, left = frozenset[str](), set(names)
            if matched is not None and matched.version >= self._changes_since:
                changed = {name for name, at in self._changes.items() if at > matched.version}
                kept, left = matched.names - changed, changed & names
            matched = _Matched(kept | await matching_names(regex, left), version)
        self._matched[regex] = matched
        self._forget_unsubscribed()
        return matched.names

    def _forget_unsubscribed(self) -> None:
        others = [regex for regex in self._matched if regex not in self._subscribed]
        for regex in others[:-MAX_UNSUBSCRIBED]:
            del self._matched[regex]

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
        changed = names ^ (self._names or set())
        self._changed |= changed
        if self._names is None or changed:
            self._note(changed)
        self._names, self._listed_at = names, time.monotonic()

    def _note(self, changed: Collection[str]) -> None:
        """These names come or go: what expressions match may change."""
        self._version += 1
        self._changes.update(dict.fromkeys(changed, self._version))
        if len(self._changes) > MAX_CHANGES:
            self._changes.clear()
            self._changes_since = self._version

    # Keeping up

    async def follow(self, subscriptions: Callable[[], Subscriptions], tell: Callable[[Collection[str]], None]) -> None:
        """Call `tell` with the names of topics that changed, after they were looked up; runs until cancelled."""
        while True:
            self._news.clear()
            try:
                # Absent topics that no group reads any more are removed.
                names, self._subscribed = subscriptions()
                self._absent &= await self.learn(names, self._subscribed)
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
        if self._names is not None and (name in self._names) != present:
            _enter(name, self._names, present=present)
            self._note([name])
        self._changed.add(name)
        self._news.set()


def _enter(name: str, names: set[str], *, present: bool) -> None:
    (names.add if present else names.discard)(name)
