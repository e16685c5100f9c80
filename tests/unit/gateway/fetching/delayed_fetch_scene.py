"""Logs without Pulsar, and fetches of them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from gateway.errors import KafkaError
from gateway.fetching.delayed_fetch import DelayedFetch
from gateway.fetching.fetch_answer import FetchAnswer, group_by_topic
from gateway.fetching.fetch_session import FetchedPartition
from gateway.fetching.fetched_parts import FetchParams, FetchPartitionState
from gateway.log.entries.log_entry import Buffer, Slice
from gateway.log.partition_log import PartitionLog
from protocol.kafka.errors import ErrorCode
from tests.support.empty_batch import empty_batch


class FakeWaiters(set[Any]):
    def add(self, waiter: Any, offset: int, *, at_end: bool) -> None:  # type: ignore[override]
        super().add(waiter)
        self.at_end = at_end


class FakeLog:
    """Batches of one offset from ``memory_start`` to the end in memory; earlier ones arrive when ``loaded``."""

    def __init__(self, end_offset: int, memory_start: int = 0) -> None:
        self.start, self.end_offset = SimpleNamespace(offset=0), end_offset
        self.memory_start = memory_start
        self.loaded = self.closed = self.follows_leader = False
        self.waiters = FakeWaiters()
        self.refresh: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.owner_error: Exception | None = None
        self.end = SimpleNamespace(refresh_with_others=self._refresh_end, check_owner=self._check_owner)
        self.reader = self
        self.source = SimpleNamespace(compacted=False)
        self.transactions = SimpleNamespace(loaded=True, last_stable_offset=end_offset)

    @property
    def written_offset(self) -> int:
        return self.end_offset

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True, before: int) -> Slice | None:
        if offset < self.memory_start and not self.loaded:
            return None
        count = max(max_bytes // len(empty_batch(0, 1)), int(at_least_one))
        chunks: list[Buffer] = [empty_batch(at, 1) for at in range(offset, min(self.end_offset, offset + count))]
        return Slice(chunks, sum(map(len, chunks)), offset + len(chunks))

    def available_bytes(self, offset: int, before: int) -> int:
        if offset < self.memory_start:
            return 0
        return (self.end_offset - offset) * len(empty_batch(0, 1))

    def is_read_ahead(self, offset: int) -> bool:
        return self.loaded

    def prefetch(self, offset: int) -> None:
        pass

    async def _refresh_end(self) -> None:
        await self.refresh

    async def _check_owner(self) -> None:
        if self.owner_error is not None:
            raise self.owner_error

    def move(self, count: int = 1) -> None:
        self.end_offset += count
        for waiter in tuple(self.waiters):
            waiter.log_moved()


Opening = asyncio.Future[FakeLog]
"""A log that is not open yet; or the error of opening it."""


def fetch(
    *wanted: tuple[FakeLog | Opening, int], max_wait_ms: int = 60_000, min_bytes: int = 1,
    beyond_end: ErrorCode = ErrorCode.OFFSET_OUT_OF_RANGE, read_committed: bool = False, room_bytes: int = 1 << 20,
) -> DelayedFetch:
    parts = []
    cold: dict[int, Opening] = {}
    for number, (log, offset) in enumerate(wanted):
        part = FetchPartitionState(FetchedPartition("t", number, offset, 1 << 20, -1, -1))
        if isinstance(log, FakeLog):
            part.log = cast(PartitionLog, log)
        else:
            cold[number] = log
        parts.append(part)

    async def open_log(part: FetchPartitionState) -> None:
        try:
            part.log = cast(PartitionLog, await asyncio.shield(cold[part.fetched.partition]))
        except KafkaError as error:
            part.error = error.code

    params = FetchParams(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, room_bytes=lambda: room_bytes, whole_first_batch=True,
        read_committed=read_committed, beyond_end=lambda: beyond_end,
    )  # fmt: skip
    return DelayedFetch(params, parts, open_log, lambda rows: FetchAnswer(responses=group_by_topic(rows, by_id=False)))


def started(fetch: DelayedFetch) -> FetchAnswer | asyncio.Future[FetchAnswer]:
    return fetch.start() or fetch.future


async def answer(outcome: Any) -> list[tuple[int, int]]:
    """(error code, bytes) of each partition."""
    async with asyncio.timeout(5):
        found = await outcome if isinstance(outcome, asyncio.Future) else outcome
    assert isinstance(found, FetchAnswer)
    return [(part.error_code, part.records.size_bytes) for topic in found.responses for part in topic.partitions]


BATCH = len(empty_batch(0, 1))


def parked(fetch: DelayedFetch) -> asyncio.Future[Any]:
    assert fetch.start() is None
    return fetch.future


def opening() -> Opening:
    return asyncio.get_running_loop().create_future()
