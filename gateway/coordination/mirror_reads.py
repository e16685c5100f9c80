"""One look at a partition's subscriptions for all who ask in a short time: groups come in crowds."""

from __future__ import annotations

import asyncio

from gateway.coordination.mirror_cursors import Cursor, Cursors, TopicCursors

MAX_AGE_S = 5.0
MAX_AT_ONCE = 16
"""Requests to Pulsar, whoever asks: others need it too."""
MAX_TOPICS = 20_000
MAX_CURSORS = 200_000
"""Of all topics together: about 200 bytes each."""


class _Read:
    """What was found, or will be; it no longer counts for subscriptions that were moved since."""

    def __init__(self, task: asyncio.Task[TopicCursors]) -> None:
        self.task = task
        self.moved: set[str] = set()
        self.count = 0


class SharedReads:
    def __init__(self, cursors: Cursors) -> None:
        self._cursors = cursors
        self._reads: dict[str, _Read] = {}
        self._count = 0
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)

    async def find(self, topic: str, name: str) -> tuple[TopicCursors, Cursor | None]:
        """A subscription's cursor, None if there is no such subscription, as Pulsar had it at most MAX_AGE_S ago."""
        read = self._reads.get(topic)
        if read is None or name in read.moved:
            read = self._start(topic)
        cursors = await asyncio.shield(read.task)
        return cursors, cursors.by_name.get(name)

    def _start(self, topic: str) -> _Read:
        if (old := self._reads.get(topic)) is not None:
            self._drop(topic, old)
        self._drop_oldest(MAX_TOPICS - 1, MAX_CURSORS)
        read = self._reads[topic] = _Read(asyncio.create_task(self._read(topic)))
        read.task.add_done_callback(lambda task: self._done(topic, read))
        return read

    async def _read(self, topic: str) -> TopicCursors:
        async with self._slots:
            return await self._cursors.read(topic)

    def _done(self, topic: str, read: _Read) -> None:
        if read.task.cancelled() or read.task.exception() is not None:
            self._drop(topic, read)
        elif self._reads.get(topic) is read:
            read.count = len(read.task.result().by_name)
            self._count += read.count
            asyncio.get_running_loop().call_later(MAX_AGE_S, self._drop, topic, read)
            self._drop_oldest(MAX_TOPICS, MAX_CURSORS)

    def _drop_oldest(self, topics: int, cursors: int) -> None:
        while self._reads and (len(self._reads) > topics or self._count > cursors):
            topic, read = next(iter(self._reads.items()))
            self._drop(topic, read)

    def _drop(self, topic: str, read: _Read) -> None:
        if self._reads.get(topic) is read:
            del self._reads[topic]
            self._count -= read.count

    def forget(self, topic: str, name: str) -> None:
        """The subscription has been moved."""
        if (read := self._reads.get(topic)) is not None:
            read.moved.add(name)

    async def close(self) -> None:
        tasks = [read.task for read in self._reads.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
