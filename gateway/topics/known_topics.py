"""A cache of one namespace's topics: looked up when they are requested, and renewed in the background."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import NamedTuple, TypeVar

import structlog

from gateway.background import run_once, run_shared
from gateway.observability.logs import SparseLog
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.http import AdminError
from gateway.pulsar.admin.topics import PartitionedTopic
from gateway.pulsar.errors import RequestTimeoutError
from gateway.topics import topic_names
from gateway.topics.policy_changes import PolicyChanges
from gateway.topics.topic import (
    COMPACTION_KEYS,
    HAS_TRANSACTIONS,
    MESSAGES_ONLY,
    TOPIC_ID,
    Topic,
    read_topic,
    stored_configs,
    stored_ends,
    topic_id,
)
from gateway.topics.topic_configs import DEFAULTS
from gateway.topics.topic_listing import TopicListing

MAX_PARALLEL_REQUESTS = 16

HIDDEN_S = 30.0
"""After this time without news, another gateway, of an older version, has failed to delete the topic."""

T = TypeVar("T")

log = SparseLog(structlog.get_logger())


class Listing(NamedTuple):
    topics: list[Topic]
    """Sorted by name."""
    unknown: list[str]
    """Names of existing topics that could not be looked up in Pulsar."""


class _Hidden:
    """A topic that lookups do not find for a while."""

    def __init__(self, end_s: float) -> None:
        self.end_s = end_s
        self.ended = asyncio.Event()


class _Outdated(Exception):
    """The topic may have been read before it was deleted."""


class TopicListener:
    """Receives changes of topics. Listeners are called in the order in which they subscribed."""

    def topic_changed(self, name: str) -> None:
        """The topic was created, deleted or changed."""

    def topic_gone(self, name: str) -> None:
        """Others deleted the topic; a new topic with this name may exist already."""


class KnownTopics:
    """The topics of one namespace, cached. Methods raise PulsarError."""

    def __init__(
        self,
        admin: AdminClient,
        namespace: str,
        max_age_ms: int,
        defaults: Mapping[str, str] = DEFAULTS,
        system_namespace: str | None = None,
        *,
        timeout_ms: int = 10_000,
    ) -> None:
        """``defaults`` are those of this gateway's configuration; ``timeout_ms`` is the longest wait for a lookup.

        Internal topics are in ``system_namespace``; if it is None, they are in the same namespace as all others.
        """
        self._admin = admin
        self._defaults = defaults
        self._namespace = namespace
        self._system_namespace = system_namespace or namespace
        self.max_age_s = max_age_ms / 1000
        self._timeout_s = timeout_ms / 1000
        self._listing = TopicListing(admin, namespace, self._system_namespace, self.max_age_s, self._timeout_s)
        self._policies = PolicyChanges(admin, defaults)
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, str] = {}
        self._refreshing: dict[str, asyncio.Task[Topic | None]] = {}
        """The lookups that run, by name. One that was removed from here is outdated."""
        self._next: dict[str, asyncio.Task[Topic | None]] = {}
        """The lookups that have not begun."""
        self._renewing: asyncio.Task[None] | None = None
        self._renewed_at = float("-inf")
        self._sweeping: asyncio.Task[None] | None = None
        self._deleting: set[str] = set()
        """Names of topics that are being deleted: lookups do not find them."""
        self._hidden: dict[str, _Hidden] = {}
        """Topics that another gateway is deleting."""
        self._slots = asyncio.Semaphore(MAX_PARALLEL_REQUESTS)
        self._listeners: list[TopicListener] = []

    def subscribe(self, listener: TopicListener) -> None:
        self._listeners.append(listener)

    async def close(self) -> None:
        """Unfinished changes are left to the gateway that loads the topics next."""
        refreshing = [*self._refreshing.values(), *self._next.values()]
        tasks = [*refreshing, *(task for task in (self._renewing, self._sweeping) if task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, self._policies.close(), return_exceptions=True)

    def cached(self, name: str) -> Topic | None:
        """The topic from the cache, without a request. An old one is returned too, and renewed in the background."""
        topic = self._topics.get(name)
        if topic is not None and time.monotonic() - topic.loaded_at > self.max_age_s:  # `_is_old`, in place
            self._refresh(name)
        return topic

    def _is_old(self, topic: Topic) -> bool:
        return time.monotonic() - topic.loaded_at > self.max_age_s

    def compaction(self, name: str) -> int:
        """0 if the topic is not compacted, as far as is known; otherwise a number that changes if that has ended."""
        topic = self._topics.get(name)
        return 0 if topic is None or not topic.compacts else 1 + topic.compaction_ends

    def cached_name(self, topic_id: uuid.UUID | None) -> str | None:
        return None if topic_id is None else self._by_id.get(topic_id)

    async def get(self, name: str, *, fresh: bool = False) -> Topic | None:
        """The topic, or None if it does not exist. With ``fresh``, as it is after this call."""
        topic = None if fresh else self.cached(name)
        if topic is not None:
            return topic
        if topic_names.invalid_reason(name) is not None:
            return None
        return await self._in_time(asyncio.shield(self._refresh(name, anew=fresh)), f"no response about topic {name}")

    async def read(self, name: str) -> Topic | None:
        """The topic as Pulsar has it after this call, also while it is being deleted."""
        if topic_names.invalid_reason(name) is not None:
            return None
        found = await self._in_time(self._read(name), f"no response about topic {name}")
        return None if found is None else self._new_topic(name, found.partitions, found.properties)

    async def get_by_id(self, topic_id: uuid.UUID | None) -> Topic | None:
        name = self.cached_name(topic_id)
        if name is None:
            await self._look_for_new()
            name = self.cached_name(topic_id)
        return None if name is None else await self.get(name)

    async def list_names(self) -> set[str]:
        """The names of all topics that clients may see. The list may be slightly outdated."""
        return set(await self._listing.names())

    async def names_now(self) -> AbstractSet[str]:
        """The names that Pulsar lists after this call."""
        return await self._listing.names_now()

    @property
    def count(self) -> int:
        """The number of known topics: those of the last listing, or those that were looked up so far."""
        return len(self._listing.known or self._topics)

    def _pulsar_name(self, name: str) -> str:
        namespace = self._system_namespace if name in topic_names.INTERNAL_TOPICS else self._namespace
        return f"persistent://{namespace}/{topic_names.to_pulsar(name)}"

    async def all(self) -> Listing:
        """All topics that clients may see. They may be slightly outdated; more so if Pulsar does not answer in time."""
        await self._look_for_new()
        hidden = {name for name in self._hidden if self._is_hidden(name)}
        names = sorted((self._listing.known or set()) - self._deleting - hidden)
        topics = [topic for name in names if (topic := self._topics.get(name)) is not None]
        return Listing(topics, [name for name in names if name not in self._topics])

    async def _look_for_new(self) -> None:
        """Look up new topics, once for all callers. Raises PulsarError if topics were never listed."""
        if time.monotonic() - self._renewed_at > self.max_age_s or self._listing.known is None:
            try:
                await self._in_time(asyncio.shield(self._renewing or self._renew()), "no response about all topics")
            except RequestTimeoutError as error:
                if self._listing.known is None:
                    raise
                log.warning("cannot list topics: using the previous list", error=str(error))
            self._renewed_at = time.monotonic()

    def _renew(self) -> asyncio.Task[None]:
        """Look up new topics. Known topics are looked up again afterwards."""
        self._renewing = asyncio.create_task(self._look_for_topics())
        self._renewing.add_done_callback(self._renewed)
        return self._renewing

    def _renewed(self, task: asyncio.Task[None]) -> None:
        self._renewing = None
        if not task.cancelled() and task.exception() is None and self._sweeping is None:
            self._sweeping = run_once("look at topics again", self._look_again())

    async def _look_for_topics(self) -> None:
        await self._load_each(await self._listing.names(fresh=True) - self._topics.keys())

    async def _look_again(self) -> None:
        try:
            await self._load_each(name for name, topic in self._topics.items() if self._is_old(topic))
        finally:
            self._sweeping = None

    async def _load_each(self, names: Iterable[str]) -> None:
        """Topics that cannot be looked up are skipped."""
        left = iter(tuple(names))

        async def work_off() -> None:
            for name in left:
                await asyncio.wait([self._refresh(name)])

        await asyncio.gather(*(work_off() for _ in range(MAX_PARALLEL_REQUESTS)))

    def _refresh(self, name: str, *, anew: bool = False) -> asyncio.Task[Topic | None]:
        """The lookup that runs, or the next one. With ``anew``, always one that begins after this call."""
        running = self._refreshing.get(name)
        if running is not None and not anew:
            return running
        if name not in self._next:
            self._next[name] = run_shared("lookup of a topic", self._look_up(name, running))
        return self._next[name]

    async def _look_up(self, name: str, previous: asyncio.Task[Topic | None] | None) -> Topic | None:
        if previous is not None:
            await asyncio.wait([previous])
        async with self._slots:
            own = self._refreshing[name] = self._next.pop(name)
            try:
                while True:
                    with suppress(_Outdated):
                        return await self._load(name)
                    running = self._refreshing.setdefault(name, own)
                    if running is not own:
                        return await asyncio.shield(running)
            except Exception as error:
                log.warning("cannot look up topic", topic=name, error=str(error))
                raise
            finally:
                if self._refreshing.get(name) is own:
                    del self._refreshing[name]

    async def _load(self, name: str) -> Topic | None:
        """Raises _Outdated and PulsarError."""
        before, own = self._topics.get(name), self._refreshing[name]
        found = await self._read(name)
        if name in self._deleting or self._is_hidden(name):
            return None
        if self._refreshing.get(name) is not own:
            raise _Outdated
        if self._topics.get(name) is not before:  # this gateway has changed the topic in the meantime
            return self._topics.get(name)
        if found is None:
            self._gone(name)
            return None
        topic = self._remember(self._new_topic(name, found.partitions, found.properties))
        self._policies.finish_later(topic.pulsar_name, found.properties)
        return topic

    async def _read(self, name: str) -> PartitionedTopic | None:
        try:
            return await read_topic(self._admin, self._pulsar_name(name))
        except AdminError as error:
            if not error.not_found:
                raise
            return None

    def _new_topic(self, name: str, partitions: int, properties: Mapping[str, str]) -> Topic:
        pulsar_name = self._pulsar_name(name)
        return Topic(
            name, pulsar_name, topic_id(properties.get(TOPIC_ID), pulsar_name), max(1, partitions),
            partitions > 0, stored_configs(pulsar_name, properties), time.monotonic(), self._defaults,
            MESSAGES_ONLY in properties, HAS_TRANSACTIONS in properties, COMPACTION_KEYS in properties,
            stored_ends(properties),
        )  # fmt: skip

    def _gone(self, name: str) -> None:
        known = name in self._topics
        self._forget(name)
        if known:
            for listener in self._listeners:
                listener.topic_gone(name)

    def _remember(self, topic: Topic) -> Topic:
        name = topic.name
        before = self._topics.get(name)
        if before is not None and before.topic_id != topic.topic_id:
            self._gone(name)
        self.show(name)
        self._topics[name] = topic
        self._by_id[topic.topic_id] = name
        self._listing.note(name, exists=True)
        if topic != before:
            self._report_changed(name)
        return topic

    def _replace(self, topic: Topic) -> None:
        """This gateway has changed the topic. It may have been deleted in the meantime."""
        known = self._topics.get(topic.name)
        if known is not None and known.topic_id == topic.topic_id:
            self._topics[topic.name] = topic

    def hide(self, name: str) -> None:
        """Another gateway is about to delete the topic: lookups do not find it until it is forgotten or shown, or for
        HIDDEN_S."""
        now_s = time.monotonic()
        for other in [other for other, hidden in self._hidden.items() if hidden.end_s <= now_s]:
            self.show(other)
        self.show(name)
        self._hidden[name] = _Hidden(now_s + HIDDEN_S)
        self._forget(name)

    def show(self, name: str) -> None:
        """The gateway that was about to delete the topic has done so, or could not: Pulsar knows."""
        hidden = self._hidden.pop(name, None)
        if hidden is not None:
            hidden.ended.set()

    def _is_hidden(self, name: str) -> bool:
        hidden = self._hidden.get(name)
        return hidden is not None and time.monotonic() < hidden.end_s

    def forget(self, name: str, topic_id: bytes) -> bool:
        """Forget a topic that some gateway has deleted. Returns False if a new topic has this name by now.

        Deletions are announced repeatedly, and late while the fleet's log cannot be written. Older gateways do not
        send the id.
        """
        self.show(name)
        known = self._topics.get(name)
        if known is not None and topic_id and known.topic_id.bytes != topic_id:
            return False
        self._forget(name)
        return True

    def _outdate(self, name: str) -> None:
        """The lookup that runs may have read the topic as it was before: it looks again."""
        self._refreshing.pop(name, None)

    def _forget(self, name: str) -> None:
        self._outdate(name)
        self._listing.note(name, exists=False)
        topic = self._topics.pop(name, None)
        if topic is not None:
            self._by_id.pop(topic.topic_id, None)
            self._report_changed(name)

    def _report_changed(self, name: str) -> None:
        for listener in self._listeners:
            listener.topic_changed(name)

    async def stored_bytes(self, topic: Topic) -> dict[int, int]:
        """The bytes that Pulsar stores of each partition, without copies."""
        async with self._slots:
            if topic.partitioned:
                return await self._admin.topics.partition_sizes(topic.pulsar_name)
            return {0: (await self._admin.topics.stats(topic.pulsar_name))["storageSize"]}

    async def _in_time(self, work: Awaitable[T], text: str, timeout_s: float | None = None) -> T:
        try:
            async with asyncio.timeout(self._timeout_s if timeout_s is None else timeout_s):
                return await work
        except TimeoutError as error:
            raise RequestTimeoutError(text) from error
