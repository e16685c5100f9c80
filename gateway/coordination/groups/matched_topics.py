"""The topics that regular expressions of consumer groups match."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import NamedTuple
from weakref import WeakValueDictionary

import structlog

from coordinator.topic_regex import InvalidRegexError
from gateway.coordination.expressions import CostlyRegexError, Expression
from gateway.coordination.groups.listed_topics import ListedTopics

MAX_UNSUBSCRIBED = 100
MAX_UNSUBSCRIBED_NAMES = 100_000
"""The expressions that are remembered although no group subscribes to them, or not yet, and what they match together.
The newest one is always among them: the request that asked for it reads it."""
MAX_NAMES = 1_000_000
"""What all subscribed expressions match together, some 60 bytes each; those that match the same names share them. Above
it, no expression is added."""
MAX_REFUSED = 1_000
"""Refused expressions that are remembered."""
RETRY_S = 600.0
"""An expression that took too long is tried again after this time: there may be fewer topics."""
LOGGED = 200
"""Characters of an expression in the log."""

log = structlog.get_logger()


class _Matched(NamedTuple):
    """What an expression matched among the names of a version."""

    names: frozenset[str]
    version: int


class _Refused(NamedTuple):
    """`reason` is a text: an exception that is raised again and again keeps the requests that it was raised for."""

    reason: str
    until_s: float


class MatchedTopics:
    def __init__(self, listed: ListedTopics) -> None:
        self._listed = listed
        self._matched: dict[str, _Matched] = {}
        """By expression."""
        self._refused: dict[str, _Refused] = {}
        """By expression. What it matched before stays in the groups."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By expression: callers that need the same one share its result."""

    def current(self, regex: str) -> frozenset[str] | None:
        """None if topics were created or deleted since the expression was matched."""
        matched = self._matched.get(regex)
        return None if matched is None or matched.version < self._listed.version else matched.names

    def last(self, regex: str) -> frozenset[str]:
        matched = self._matched.get(regex)
        return frozenset() if matched is None else matched.names

    def is_refused(self, regex: str) -> bool:
        """Whether the expression is not matched for now."""
        refused = self._refused.get(regex)
        return refused is not None and time.monotonic() < refused.until_s

    async def match(self, regex: str, subscribed: Collection[str]) -> frozenset[str]:
        """What the expression matches now; nothing if Pulsar does not list the topics. Raises InvalidRegexError.

        Topics that are created or deleted meanwhile are matched in the next round.
        """
        lock = self._locks.setdefault(regex, asyncio.Lock())
        async with lock:
            if self.is_refused(regex):
                raise InvalidRegexError(self._refused[regex].reason)
            try:
                return await self._match(regex, subscribed)
            except CostlyRegexError as error:
                self.refuse(regex, error)
                raise

    async def _match(self, regex: str, subscribed: Collection[str]) -> frozenset[str]:
        expression, matched = Expression(regex), self._matched.get(regex)
        if matched is None:
            await expression.matching(())  # an invalid one asks nothing of Pulsar
        await self._listed.refresh()
        if not self._listed.is_listed:
            return frozenset()
        while matched is None or matched.version < self._listed.version:
            version, kept, left = self._listed.version, frozenset[str](), self._listed.all()
            changes = None if matched is None else self._listed.changed_since(matched.version)
            if matched is not None and changes is not None:
                changed, existing = changes
                kept, left = matched.names - changed, tuple(existing)
            matched = _Matched(kept | await expression.matching(left), version)
        matched = self._shared(matched)
        if regex not in self._matched:
            self._check_room(matched.names, subscribed)
        self._matched.pop(regex, None)
        self._matched[regex] = matched
        if regex not in subscribed:
            self.forget_all_but(subscribed)
        return matched.names

    def _shared(self, matched: _Matched) -> _Matched:
        """Equal names are kept once."""
        names = next((each.names for each in self._matched.values() if each.names == matched.names), matched.names)
        return matched._replace(names=names)

    def _check_room(self, names: frozenset[str], subscribed: Collection[str]) -> None:
        """Raises InvalidRegexError. A single expression may match any number of topics."""
        kept = [matched.names for regex, matched in self._matched.items() if regex in subscribed]
        sizes = {id(each): len(each) for each in kept}
        if sizes and id(names) not in sizes and sum(sizes.values()) + len(names) > MAX_NAMES:
            raise InvalidRegexError("the expressions of all groups match too many topics together")

    def refuse(self, regex: str, error: InvalidRegexError) -> None:
        """Do not match the expression for a while."""
        log.warning("regular expression of a group is not matched", regex=regex[:LOGGED], reason=str(error))
        self._refused.pop(regex, None)
        self._refused[regex] = _Refused(str(error), time.monotonic() + RETRY_S)
        if len(self._refused) > MAX_REFUSED:
            del self._refused[next(iter(self._refused))]

    def forget_all_but(self, subscribed: Collection[str]) -> None:
        """Keep the subscribed expressions, and the newest of the others."""
        others = [regex for regex in self._matched if regex not in subscribed]
        names = 0
        for age, regex in enumerate(reversed(others)):
            names += len(self._matched[regex].names)
            if age >= MAX_UNSUBSCRIBED or (age and names > MAX_UNSUBSCRIBED_NAMES):
                del self._matched[regex]
