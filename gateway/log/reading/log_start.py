"""The start of a partition's log: retention moves it by whole ledgers, clients move it by deleting records.

Compaction does not move the start, but removes records after it, which memory may still hold.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from gateway.errors import KafkaError
from gateway.log.bounds.deleted_records import write_deleted
from gateway.log.bounds.log_bounds import LogBounds
from gateway.log.bounds.log_end import LogEnd
from gateway.log.bounds.start_search import FirstOffset, StartSearch
from gateway.log.reading.cache import LogTail
from gateway.log.reading.waiters import Waiters
from gateway.log.resources import Resources
from gateway.log.shared_run import SharedRun
from protocol.kafka.errors import ErrorCode

CHECK_S = 15.0
START_AGE_S = 1.0
"""Requests for the start, and fetches redirected to a preferred read replica, use a start no older than this."""
NO_LEDGER = -1


class LogStart:
    """The first offset that can be read; it only increases."""

    def __init__(
        self,
        pulsar_topic: str,
        resources: Resources,
        bounds: LogBounds,
        end: LogEnd[Any],
        tail: LogTail,
        waiters: Waiters,
        compaction: Callable[[], int],
    ) -> None:
        self.offset = bounds.start_offset
        self.at_first_entry = bounds.starts_at_first_entry
        self._topic = pulsar_topic
        self._admin = resources.admin
        self._end = end
        self._tail = tail
        self._waiters = waiters
        self._compaction = compaction
        self._search = StartSearch(resources.client, resources.admin, pulsar_topic, bounds.first)
        self._checked = bounds.asked_at
        self._deleting = asyncio.Lock()
        self._closed = False
        self._compacted_ledger_id = NO_LEDGER
        self._looking = SharedRun(self._look)

    def checked_within(self, seconds: float) -> bool:
        """Whether the start was looked up within this time."""
        return time.monotonic() - self._checked < seconds

    def refresh_ahead(self, at_most_every_s: float) -> None:
        """Start the work of ``refresh`` before a caller has to wait for it."""
        if not self.checked_within(at_most_every_s):
            self._looking.start()

    async def refresh(self, *, at_most_every_s: float = CHECK_S) -> None:
        """Check whether retention or compaction removed entries. Raises PulsarError, TimeoutError and KafkaError."""
        if not self.checked_within(at_most_every_s):
            await self._looking.wait()

    async def _look(self) -> None:
        asked_at = time.monotonic()
        if self._compaction():
            await self._forget_compacted()
        end_offset = self._end.next_offset  # entries written during the search are not found, and must stay readable
        found = await self._search.run()
        if found is None:
            found = FirstOffset(end_offset, at_first_entry=False)
        if found.offset >= self.offset:
            moved = found.offset > self.offset
            self.offset, self.at_first_entry = found
            if moved:
                self._waiters.wake()  # some may wait for deleted data
        self._checked = asked_at

    async def _forget_compacted(self) -> None:
        """Drop the entries in memory if compaction has run since the last check: it may have removed some of them."""
        stats = await self._admin.topics.internal_stats(self._topic)
        if stats.compacted_ledger.ledger_id != self._compacted_ledger_id:
            self._compacted_ledger_id = stats.compacted_ledger.ledger_id
            self._tail.clear()

    async def delete_before(self, offset: int) -> None:
        """Raise the start to ``offset``, permanently and for all gateways. Raises the errors of ``refresh``."""
        async with self._deleting:
            await self.refresh(at_most_every_s=0)
            self._check_open()
            if offset > self.offset:
                await write_deleted(self._admin, self._topic, offset)
                self._check_open()
            if offset > self.offset:  # retention may have moved the start in the meantime
                self.offset, self.at_first_entry = offset, False
                self._waiters.wake()

    def _check_open(self) -> None:
        """The log that follows a closed one may have looked for its start before: it would return deleted records."""
        if self._closed:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the log was closed")

    def close(self) -> None:
        self._closed = True
        self._looking.cancel()
