"""The logs that are open in this gateway."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable
from functools import partial
from typing import TypeVar

import structlog

from gateway.errors import KafkaError
from gateway.log.entries.decoding import DecodingThreads
from gateway.log.opening_turns import HOLD_AGAIN_S, NOBODY, OpeningTurns
from gateway.log.partition_log import PartitionLog, open_log
from gateway.log.patience import Patience
from gateway.log.shared import Shared
from gateway.observability.logs import LINES_PER_S, SparseLog
from gateway.topics.topic import Topic
from protocol.kafka.errors import ErrorCode

SLICE = 50
"""The number of logs that begin to close before the event loop serves other tasks."""

Key = tuple[str, int]
T = TypeVar("T")
log = SparseLog(structlog.get_logger(), lines=LINES_PER_S)


class _Opening:
    """A log that is being opened."""

    def __init__(self, patience: Patience, *, leads: bool) -> None:
        self.patience = patience
        self.led = leads
        """This gateway led the partition when the opening began."""
        self.begun = asyncio.Event()
        """Set when the opening has its turn, or has ended."""
        self.unwanted = False
        """The topic was deleted since, or another gateway leads or led the partition: what was read may be outdated."""
        self.task: asyncio.Task[PartitionLog]

    def check(self) -> None:
        """Raises KafkaError if the log is unwanted."""
        if self.unwanted:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition changed while it was opened")


class LogRegistry:
    """The logs by (topic, partition). Each is opened once, and closed when it was not used for a while."""

    def __init__(
        self,
        shared: Shared,
        compaction: Callable[[str], int],
        leads: Callable[[str, int], bool] = lambda topic, partition: True,
    ) -> None:
        """``compaction`` returns whether the topic of this name is compacted, as far as is known now: 0 if not,
        otherwise a number that changes if it is not for a while. ``leads``, whether this gateway leads a partition."""
        self.shared = shared
        self._leads = leads
        self._compaction = compaction
        self._logs: dict[Key, PartitionLog] = {}
        self._opening: dict[Key, _Opening] = {}
        self._unwanted: set[_Opening] = set()
        """Abandoned openings that have not ended yet."""
        self._turns = OpeningTurns(shared.limits.max_log_openings)
        self._exhausted: dict[Key, Patience] = {}
        """The patience of the partitions whose last opening failed slowly."""

    @property
    def decoding(self) -> DecodingThreads:
        return self.shared.decoding

    def find(self, topic_name: str, partition: int) -> PartitionLog | None:
        """The log if it is open, else None."""
        found = self._logs.get((topic_name, partition))
        return None if found is None or found.closed else found

    def all_open(self) -> list[tuple[Key, PartitionLog]]:
        return [(key, opened) for key, opened in self._logs.items() if not opened.closed]

    async def open(
        self, topic: Topic, partition: int, *, urgent: bool = False, whose: Hashable = NOBODY
    ) -> PartitionLog:
        """The log, opened if necessary, before the others if ``urgent``, else in the turn of the client ``whose``.

        Raises PulsarError, KafkaError and TimeoutError.
        """
        key = (topic.name, partition)
        found = self.find(topic.name, partition)
        if found is not None:
            return found
        opening = self._opening.get(key)
        if opening is None:
            opening = self._begin(key, topic.pulsar_topic(partition), urgent=urgent, whose=whose)
        elif urgent:
            self._turns.hasten(opening)
        elif whose != NOBODY and not opening.patience.exhausted:
            self._turns.share(opening, whose)
        await opening.begun.wait()
        return await opening.patience.wait(opening.task)

    def _begin(self, key: Key, pulsar_topic: str, *, urgent: bool, whose: Hashable) -> _Opening:
        opening = self._opening[key] = _Opening(
            self._exhausted.get(key) or Patience(self._turns), leads=self._leads(*key)
        )
        opening.task = asyncio.create_task(self._open(opening, key, pulsar_topic, urgent=urgent, whose=whose))
        opening.task.add_done_callback(partial(self._opened, key, opening))
        return opening

    async def _open(
        self, opening: _Opening, key: Key, pulsar_topic: str, *, urgent: bool, whose: Hashable
    ) -> PartitionLog:
        again = opening.patience.exhausted
        hold_s, whose = (HOLD_AGAIN_S, NOBODY) if again else (None, whose)
        async with self._turns.turn(opening, urgent=urgent and not again, hold_s=hold_s, whose=whose):
            opening.patience.begin()
            opening.begun.set()
            opening.check()
            predecessor, lost_producer = self._logs.get(key), None
            if predecessor is not None:
                await predecessor.close()  # its entries in flight are then in the log, or will never be
                lost_producer = predecessor.writer.lost_producer
            opened = await open_log(pulsar_topic, self.shared, partial(self._compaction, key[0]), lost_producer)
        opened.follows_leader = not opening.led
        opening.unwanted = opening.unwanted or (opened.follows_leader and self._leads(*key))
        try:
            opening.check()
        except KafkaError:
            await opened.close()
            raise
        self._logs[key] = opened
        return opened

    def _opened(self, key: Key, opening: _Opening, task: asyncio.Task[PartitionLog]) -> None:
        opening.patience.end(task)
        opening.begun.set()  # also if the task was cancelled before its turn
        self._unwanted.discard(opening)
        if self._opening.get(key) is opening:
            del self._opening[key]
        if opening.patience.exhausted:
            self._exhausted[key] = opening.patience
        else:
            self._exhausted.pop(key, None)
        if not task.cancelled() and task.exception() is not None:
            log.warning("cannot open log", topic=key[0], partition=key[1], error=str(task.exception()))

    # Closing

    async def forget_topic(self, name: str) -> None:
        """The topic was deleted, or its name belongs to another topic now."""
        self._abandon(lambda topic, _: topic == name)
        for key in [key for key in self._exhausted if key[0] == name]:
            del self._exhausted[key]
        gone = [self._logs.pop(key) for key in [*self._logs] if key[0] == name]
        await _each(PartitionLog.close, gone)

    def start_closing(self, unwanted: Callable[[str, int], bool]) -> None:
        """The logs of these (topic, partition) accept nothing more. `close_those` waits until they are closed."""
        self._abandon(unwanted)
        for key, opened in self._logs.items():
            if unwanted(*key):
                opened.start_closing()

    async def close_those(self, unwanted: Callable[[str, int], bool]) -> None:
        """Close the logs of these (topic, partition), and wait for those that are closing.

        On return, everything in flight is written or has failed.
        """
        self._abandon(unwanted)
        await self._close_all([key for key, opened in self._logs.items() if opened.closed or unwanted(*key)])

    def _abandon(self, unwanted: Callable[[str, int], bool]) -> None:
        """Abandon these openings: later callers get a new one."""
        for key in [key for key in self._opening if unwanted(*key)]:
            opening = self._opening.pop(key)
            opening.unwanted = True
            self._unwanted.add(opening)

    async def _close_all(self, keys: Iterable[Key]) -> None:
        await _each(self._close, [(key, self._logs[key]) for key in keys])

    async def _close(self, open_log: tuple[Key, PartitionLog]) -> None:
        """Callers that open the log in the meantime wait for this."""
        key, opened = open_log
        await opened.close()
        if self._logs.get(key) is opened and opened.writer.lost_producer is None:  # otherwise the next log needs it
            del self._logs[key]

    def on_lease_lost(self) -> None:
        """The lease has expired, or a partition was not released in time."""
        for opened in [*self._logs.values()]:
            opened.writer.on_lease_lost()

    async def close_stalled(self) -> None:
        """Close the logs whose batches Pulsar does not answer. Their clients get an error and retry."""
        stalled = [key for key, opened in self._logs.items() if opened.writer.stalled]
        for topic, partition in stalled:
            log.warning("Pulsar does not answer: opening the log again", topic=topic, partition=partition)
        await self._close_all(stalled)

    async def close_idle(self) -> None:
        """Close the logs that were not used for a while."""
        deadline = time.monotonic() - self.shared.limits.log_idle_ms / 1000

        async def close(open_log: tuple[Key, PartitionLog]) -> None:
            if open_log[1].last_used < deadline and not open_log[1].waiters:  # still unused
                await self._close(open_log)

        await _each(close, [(key, opened) for key, opened in self._logs.items() if opened.last_used < deadline])

    async def close(self) -> None:
        for opening in [*self._opening.values(), *self._unwanted]:
            opening.task.cancel()
        logs, self._logs = list(self._logs.values()), {}
        await asyncio.gather(*(opened.close() for opened in logs), return_exceptions=True)


async def _each(close: Callable[[T], Awaitable[None]], items: Iterable[T]) -> None:
    """Close all at the same time: a log that waits for Pulsar does not hold up the others."""
    tasks = []
    for number, item in enumerate(items):
        tasks.append(asyncio.ensure_future(close(item)))
        if number % SLICE == SLICE - 1:
            await asyncio.sleep(0)
    await asyncio.gather(*tasks)
