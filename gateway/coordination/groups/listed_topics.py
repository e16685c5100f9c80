"""The names of all topics, which regular expressions are matched with, and their changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection

import structlog

from gateway.pulsar.errors import PulsarError
from gateway.topics.catalog import TopicCatalog

LIST_MAX_AGE_S = 30.0
"""The maximum age of the list. Topics created here are added at once."""
MAX_CHANGES = 10_000
"""Names that are created or deleted. After more, all expressions are matched again with all names."""

log = structlog.get_logger()


class ListedTopics:
    def __init__(self, catalog: TopicCatalog, on_changed: Callable[[Collection[str]], None]) -> None:
        """`on_changed` gets the names that a new list adds or lacks."""
        self._catalog = catalog
        self._on_changed = on_changed
        self._names: set[str] | None = None
        self._all: tuple[str, ...] | None = None
        """The names as a tuple, until they change: many expressions are matched with it at the same time."""
        self._listed_at = float("-inf")
        self._listing = asyncio.Lock()
        self._recent: dict[str, None] = {}
        """Topics that were created or deleted since the last list: the next one may be older than that."""
        self.version = 0
        """The number of changes."""
        self._changes: dict[str, int] = {}
        """The versions that last changed these names, all after `_changes_since`."""
        self._changes_since = 0

    @property
    def is_listed(self) -> bool:
        return self._names is not None

    @property
    def is_old(self) -> bool:
        return time.monotonic() - self._listed_at >= LIST_MAX_AGE_S

    def all(self) -> tuple[str, ...]:
        if self._all is None:
            self._all = tuple(self._names or ())
        return self._all

    def changed_since(self, version: int) -> tuple[set[str], set[str]] | None:
        """The names that were created or deleted, and those of them that exist; None if that is not known any more."""
        if version < self._changes_since:
            return None
        changed = {name for name, at in self._changes.items() if at > version}
        return changed, changed & (self._names or set())

    async def refresh(self) -> None:
        """List the topics if the list is old. Concurrent callers share one list."""
        async with self._listing:
            if self.is_old:
                await self._list()

    async def _list(self) -> None:
        try:
            names = await self._catalog.list_names()
        except PulsarError as error:
            log.warning("cannot list topics", error=str(error))
            return
        for name in self._recent:  # they may have changed after Pulsar created the list
            _enter(name, names, present=self._catalog.cached(name) is not None)
        self._recent.clear()
        changed = names ^ (self._names or set())
        is_first, self._names, self._listed_at = self._names is None, names, time.monotonic()
        if is_first or changed:
            self._note(changed)
            self._on_changed(changed)

    def topic_changed(self, name: str, *, present: bool) -> None:
        self._recent[name] = None
        if len(self._recent) > MAX_CHANGES:
            del self._recent[next(iter(self._recent))]
        if self._names is not None and (name in self._names) != present:
            _enter(name, self._names, present=present)
            self._note([name])

    def _note(self, changed: Collection[str]) -> None:
        """These names were created or deleted: what expressions match may change."""
        self._all = None
        self.version += 1
        self._changes.update(dict.fromkeys(changed, self.version))
        if len(self._changes) > MAX_CHANGES:
            self._changes.clear()
            self._changes_since = self.version


def _enter(name: str, names: set[str], *, present: bool) -> None:
    (names.add if present else names.discard)(name)
