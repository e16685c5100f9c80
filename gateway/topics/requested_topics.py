"""The topics that one request names: looked up one by one in Pulsar, and in one listing if they are very many.

A request may name a hundred thousand topics that do not exist. Looked up one by one, they would take a minute, in which
the request holds memory that others wait for, and everybody's look-ups wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Set as AbstractSet

import structlog

from gateway.background import run_shared
from gateway.observability.logs import SparseLog
from gateway.pulsar.errors import PulsarError, RequestTimeoutError
from gateway.topics.known_topics import KnownTopics
from gateway.topics.topic import Topic

MIN_LOOKUPS = 20
LISTED_PER_LOOKUP = 100
"""Measured: a look-up takes as long as 100 topics of a listing, and each listing some look-ups more."""
UNANSWERED_IN_A_ROW = 3
"""After so many look-ups Pulsar seems to be away: each further one would take as long, for hours in all."""

log = SparseLog(structlog.get_logger())


class RequestedTopics:
    """Create it when the request has arrived: what it finds is not older than that."""

    def __init__(self, topics: KnownTopics) -> None:
        self._topics = topics
        self._asked = self._answered = self._unanswered = 0
        self._listing: asyncio.Task[AbstractSet[str] | None] | None = None
        self._counted: set[str] = set()
        """The topics whose partitions were counted since the request arrived."""

    async def get(self, name: str, *, fresh: bool = False) -> Topic | None:
        """The topic, or None if it does not exist. With ``fresh``, as it is after the request arrived, not as cached.

        Raises PulsarError.
        """
        topic = self._topics.cached(name)
        if topic is None:
            self._asked += 1
            if self._asked > self._listing_pays_after() and not await self._may_exist(name):
                return self._topics.cached(name)  # created here since then
        elif not fresh:
            return topic
        return await self._look_up(name, fresh=fresh)

    async def with_partition(self, name: str, partition: int) -> Topic | None:
        """The topic, looked up again if it may have got the partition meanwhile: once, although the request may name
        thousands of partitions that do not exist. Raises PulsarError."""
        topic = await self.get(name)
        if topic is not None and partition >= topic.partitions and name not in self._counted:
            topic = await self.get(name, fresh=True)
            self._counted.add(name)
        return topic

    def _listing_pays_after(self) -> int:
        """The number of look-ups that cost as much as a listing."""
        return MIN_LOOKUPS + self._topics.count // LISTED_PER_LOOKUP

    async def _may_exist(self, name: str) -> bool:
        if self._listing is None:
            self._listing = run_shared("listing for a request", self._list())
        names = await asyncio.shield(self._listing)
        return names is None or name in names

    async def _list(self) -> AbstractSet[str] | None:
        """None if Pulsar does not list topics, or not in time."""
        try:
            return await self._topics.names_now()
        except PulsarError as error:
            log.warning("cannot list topics: each one is looked up", error=str(error))
            return None

    async def _look_up(self, name: str, *, fresh: bool) -> Topic | None:
        if self._unanswered >= UNANSWERED_IN_A_ROW:
            raise RequestTimeoutError("no response about the topics before")
        answered = self._answered
        try:
            topic = await self._topics.get(name, fresh=fresh)
        except RequestTimeoutError:
            self._unanswered += self._answered == answered
            raise
        self._answered += 1
        self._unanswered = 0
        return topic
