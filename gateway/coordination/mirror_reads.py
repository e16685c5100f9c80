"""One look at a partition's subscriptions for all who ask in a short time: groups without offsets come in crowds."""

from __future__ import annotations

import asyncio

from gateway.coordination.mirror_cursors import Cursors, TopicCursors

MAX_AGE_S = 5.0
MAX_TOPICS = 100


class SharedReads:
    def __init__(self, cursors: Cursors) -> None:
        self._cursors = cursors
        self._reads: dict[str, asyncio.Task[TopicCursors]] = {}

    async def read(self, topic: str) -> TopicCursors:
        """As `Cursors.read`, at most MAX_AGE_S old."""
        task = self._reads.get(topic)
        if task is None:
            if len(self._reads) >= MAX_TOPICS:
                self._reads.pop(next(iter(self._reads)))
            task = self._reads[topic] = asyncio.create_task(self._cursors.read(topic))
            task.add_done_callback(lambda done: self._done(topic, done))
        return await asyncio.shield(task)

    def _done(self, topic: str, task: asyncio.Task[TopicCursors]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._forget(topic, task)
        else:
            asyncio.get_running_loop().call_later(MAX_AGE_S, self._forget, topic, task)

    def _forget(self, topic: str, task: asyncio.Task[TopicCursors]) -> None:
        if self._reads.get(topic) is task:
            del self._reads[topic]

    def forget(self, topic: str) -> None:
        """Its subscriptions have moved."""
        self._reads.pop(topic, None)

    async def close(self) -> None:
        for task in self._reads.values():
            task.cancel()
        await asyncio.gather(*self._reads.values(), return_exceptions=True)
