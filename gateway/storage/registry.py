"""The logs that are open in this gateway."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from gateway.storage.partition_log import PartitionLog, open_log
from gateway.storage.shared import Shared
from gateway.storage.topics import Topic

log = structlog.get_logger()


class LogRegistry:
    """Logs by (topic, partition); each is opened once, and closed when nobody used it for a while."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self._logs: dict[tuple[str, int], PartitionLog] = {}
        self._opening: dict[tuple[str, int], asyncio.Task[PartitionLog]] = {}

    def get(self, topic: Topic, partition: int) -> PartitionLog | None:
        """The log if it is open."""
        found = self.find(topic.name, partition)
        if found is not None:
            found.compacted = topic.compacts
        return found

    def find(self, topic_name: str, partition: int) -> PartitionLog | None:
        found = self._logs.get((topic_name, partition))
        return None if found is None or found.closed else found

    async def open(self, topic: Topic, partition: int) -> PartitionLog:
        """The log, opened if need be. Raises PulsarError."""
        key = (topic.name, partition)
        found = self.get(topic, partition)
        if found is not None:
            return found
        task = self._opening.get(key)
        if task is None:
            task = self._opening[key] = asyncio.create_task(self._open(key, topic.pulsar_topic(partition)))
            task.add_done_callback(lambda done: self._opened(key, done))
        opened = await asyncio.shield(task)
        opened.compacted = topic.compacts
        return opened

    async def _open(self, key: tuple[str, int], pulsar_topic: str) -> PartitionLog:
        predecessor, lost_writer = self._logs.get(key), None
        if predecessor is not None:
            await predecessor.close()  # what it has in flight must be in the log, or never come, when this one is read
            lost_writer = predecessor.lost_writer
        opened = await open_log(pulsar_topic, self.shared, lost_writer)
        self._logs[key] = opened
        return opened

    def _opened(self, key: tuple[str, int], task: asyncio.Task[PartitionLog]) -> None:
        self._opening.pop(key, None)
        if not task.cancelled() and task.exception() is not None:
            log.warning("cannot open log", topic=key[0], partition=key[1], error=str(task.exception()))

    async def forget_topic(self, name: str) -> None:
        """The topic is gone, or another one has its name now."""
        for key in [key for key in self._logs if key[0] == name]:
            await self._logs.pop(key).close()

    def start_closing(self, unwanted: Callable[[str, int], bool]) -> None:
        """The logs of these (topic, partition) take nothing more: `close_those` waits for their end."""
        for key, opened in self._logs.items():
            if unwanted(*key):
                opened.start_closing()

    async def close_those(self, unwanted: Callable[[str, int], bool]) -> None:
        """Close the logs of these (topic, partition), and wait for those that are closing.

        What is in flight is written, or has failed, on return.
        """
        gone = [key for key, opened in self._logs.items() if opened.closed or unwanted(*key)]
        await asyncio.gather(*map(self._close, gone))

    async def _close(self, key: tuple[str, int]) -> None:
        """Whoever opens it meanwhile waits for that."""
        opened = self._logs[key]
        await opened.close()
        if self._logs.get(key) is opened and opened.lost_writer is None:  # else its successor has to know
            del self._logs[key]

    def stop_leased(self) -> None:
        """The lease has run out, or a partition was not let go of in time."""
        for opened in [*self._logs.values()]:
            opened.stop_leased()

    async def close_stalled(self) -> None:
        """Those whose batches Pulsar does not answer: their clients are told to try again."""
        stalled = [key for key, opened in self._logs.items() if opened.stalled]
        for topic, partition in stalled:
            log.warning("Pulsar does not answer: the log is opened anew", topic=topic, partition=partition)
        await asyncio.gather(*map(self._close, stalled))

    async def close_idle(self) -> None:
        self.shared.readers.close_idle()
        deadline = time.monotonic() - self.shared.limits.log_idle_ms / 1000
        for key, opened in list(self._logs.items()):
            if opened.last_used < deadline and not opened.waiters:
                await self._close(key)

    async def close(self) -> None:
        logs, self._logs = list(self._logs.values()), {}
        await asyncio.gather(*(opened.close() for opened in logs), return_exceptions=True)
