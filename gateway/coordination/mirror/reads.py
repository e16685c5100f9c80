"""One read of a partition's subscriptions for all requests of a short time: many groups may start at the same time."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

MAX_AGE_S = 5.0
KEEP_S = 60.0
"""For clients that got no answer in time, and retry: they get the result of the same read."""
MAX_AT_ONCE = 16
"""The limit of requests to Pulsar at the same time, for all groups: the rest of the gateway needs Pulsar, too."""
MAX_TOPICS = 20_000
MAX_CURSORS = 200_000
"""The limit for all topics together: about 200 bytes each."""
MAX_UNANSWERED = 1_000

T = TypeVar("T")


class MirroredTopic(NamedTuple):
    """The Pulsar topic of a partition. A topic that is created again has another id: what was read is not its own."""

    name: str
    topic_id: uuid.UUID


class _Read(Generic[T]):
    """A read that runs or has ended. Its result is no longer valid for subscriptions that were moved since."""

    def __init__(self, task: asyncio.Task[T]) -> None:
        self.task = task
        self.ended_at = math.inf
        self.moved: set[str] = set()
        self.count = 0

    def is_older_than(self, since: float) -> bool:
        """The read ended too long ago, even for a request that has waited since then."""
        return self.ended_at < min(since, time.monotonic() - MAX_AGE_S)


class SharedReads(Generic[T]):
    """``read`` reads all subscriptions of a topic; ``count`` returns the number of subscriptions in the result."""

    def __init__(self, read: Callable[[str], Coroutine[Any, Any, T]], count: Callable[[T], int]) -> None:
        self._find = read
        self._count_of = count
        self._reads: dict[MirroredTopic, _Read[T]] = {}
        self._count = 0
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)

    async def find(self, topic: MirroredTopic, name: str, since: float = math.inf) -> T:
        """A result that is valid for the subscription ``name``: read at most MAX_AGE_S ago, or after ``since``."""
        read = self._reads.get(topic)
        if read is None or name in read.moved or read.is_older_than(since):
            read = self._start(topic)
        return await asyncio.shield(read.task)

    def _start(self, topic: MirroredTopic) -> _Read[T]:
        if (old := self._reads.get(topic)) is not None:
            self._drop(topic, old)
        self._drop_oldest(MAX_TOPICS - 1, MAX_CURSORS)
        read = self._reads[topic] = _Read(asyncio.create_task(self._read(topic.name)))
        read.task.add_done_callback(lambda task: self._done(topic, read))
        return read

    async def _read(self, topic: str) -> T:
        async with self._slots:
            return await self._find(topic)

    def _done(self, topic: MirroredTopic, read: _Read[T]) -> None:
        if read.task.cancelled() or read.task.exception() is not None:
            self._drop(topic, read)
        elif self._reads.get(topic) is read:
            read.ended_at = time.monotonic()
            read.count = self._count_of(read.task.result())
            self._count += read.count
            asyncio.get_running_loop().call_later(KEEP_S, self._drop, topic, read)
            self._drop_oldest(MAX_TOPICS, MAX_CURSORS)

    def _drop_oldest(self, topics: int, cursors: int) -> None:
        while self._reads and (len(self._reads) > topics or self._count > cursors):
            topic, read = next(iter(self._reads.items()))
            self._drop(topic, read)

    def _drop(self, topic: MirroredTopic, read: _Read[T]) -> None:
        if self._reads.get(topic) is read:
            del self._reads[topic]
            self._count -= read.count

    def forget(self, topic: MirroredTopic, name: str) -> None:
        """The subscription was moved."""
        if (read := self._reads.get(topic)) is not None:
            read.moved.add(name)

    def forget_all(self) -> None:
        """Other gateways may have moved subscriptions."""
        for topic, read in [*self._reads.items()]:
            self._drop(topic, read)

    async def close(self) -> None:
        tasks = [read.task for read in self._reads.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Unanswered:
    """Since when requests for subscriptions that were not answered in time have waited: at most KEEP_S."""

    def __init__(self) -> None:
        self._since: OrderedDict[str, float] = OrderedDict()

    @contextmanager
    def since(self, name: str) -> Iterator[float]:
        """Raises what its body raises. After a TimeoutError, the next call yields the same time."""
        now = time.monotonic()
        since = self._since.get(name, now)
        if since < now - KEEP_S:
            since = now
        try:
            yield since
        except TimeoutError:
            self._since[name] = since
            if len(self._since) > MAX_UNANSWERED:
                self._since.popitem(last=False)
            raise
        self._since.pop(name, None)
