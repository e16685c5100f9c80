"""The memory of the fetches that wait, which has a bound for all clients together."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from gateway.fetching.delayed_fetch import DelayedFetch
from gateway.fetching.fetch_answer import FetchAnswer
from gateway.fetching.fetch_session import FetchedPartition
from gateway.fetching.fetch_waits import NAMED_BYTES, WAITING_BYTES, FetchWaits, held_bytes
from gateway.fetching.fetched_parts import FetchParams, FetchPartitionState
from gateway.log.partition_log import PartitionLog
from gateway.log.reading.waiters import Waiters
from protocol.kafka.codec import decode_request, encode_request, is_flexible, parse_header
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import FetchRequest
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.fetching.delayed_fetch_scene import FakeLog

PARTITIONS, VERSION = 1_999, 12
_Topic = FetchRequest.FetchTopic


async def test_those_that_have_waited_longest_are_ended() -> None:
    ended = list[str]()
    waits = FetchWaits(100)
    ends: dict[str, Callable[[], None]] = {name: partial(ended.append, name) for name in "abcd"}
    for name in "abc":
        waits.begin(ends[name], 33)
    await let_callbacks_run()
    assert not ended
    waits.begin(ends["d"], 50)
    assert not ended, "not in this call"
    await let_callbacks_run()
    assert ended == ["a", "b"]
    for name in "acd":  # one that was told to end ends later
        waits.ended(ends[name])
    assert waits._held_bytes == 0 and not waits._waiting


async def test_a_fetch_that_is_too_large_does_not_wait() -> None:
    ended = list[str]()
    waits = FetchWaits(100)
    waits.begin(partial(ended.append, "large"), 101)
    await let_callbacks_run()
    assert ended == ["large"]


def request_frame() -> memoryview:
    rows = [
        _Topic.FetchPartition(
            partition=number, current_leader_epoch=5, fetch_offset=1_000_000 + number, last_fetched_epoch=5,
            log_start_offset=-1, partition_max_bytes=1 << 20,
        )
        for number in range(PARTITIONS)
    ]  # fmt: skip
    request = FetchRequest(
        replica_id=-1, max_wait_ms=1, min_bytes=1, max_bytes=1 << 20, isolation_level=0, session_id=0, session_epoch=-1,
        topics=[_Topic(topic="t", partitions=rows)], forgotten_topics_data=[], rack_id="",
    )  # fmt: skip
    return memoryview(b"".join(encode_request(FetchRequest, VERSION, 1, "c", request)))[4:]


def decoded(frame: memoryview) -> FetchRequest:
    body = parse_header(frame, flexible=is_flexible(FetchRequest, VERSION)).body
    return decode_request(FetchRequest, VERSION, frame, body)


def named(request: FetchRequest) -> dict[Any, FetchedPartition]:
    [topic] = request.topics
    return {
        (topic.topic, row.partition): FetchedPartition(
            topic.topic, row.partition, row.fetch_offset, row.partition_max_bytes, row.current_leader_epoch,
            row.last_fetched_epoch,
        )
        for row in topic.partitions
    }  # fmt: skip


def waiting(fetched: list[FetchedPartition], logs: list[FakeLog]) -> DelayedFetch:
    parts = [FetchPartitionState(each) for each in fetched]
    for part, log in zip(parts, logs, strict=True):
        part.log = cast(PartitionLog, log)
    params = FetchParams(
        max_wait_ms=60_000, min_bytes=1, room_bytes=lambda: 0, whole_first_batch=True, read_committed=False,
        beyond_end=lambda: ErrorCode.NONE,
    )  # fmt: skip
    fetch = DelayedFetch(params, parts, cast(Any, None), lambda rows: FetchAnswer())
    assert fetch.start() is None
    return fetch


async def test_what_a_fetch_takes_while_it_waits() -> None:
    logs = [FakeLog(1_000_000 + number) for number in range(PARTITIONS)]
    for log in logs:
        waiters = Waiters(lambda: True)
        waiters.stop_watching()  # a log has one timer for all that wait
        waiters.add(cast(Any, object()), 0, at_end=True)
        log.waiters = cast(Any, waiters)
    frame = request_frame()
    kept = named(decoded(frame))
    waiting([*kept.values()], logs).future.cancel()  # what is made once
    await let_callbacks_run()
    tracemalloc.start()
    try:
        request = decoded(frame)
        partitions = named(request)
        named_bytes = tracemalloc.get_traced_memory()[0]
        fetch = waiting([*partitions.values()], logs)
        waiting_bytes = tracemalloc.get_traced_memory()[0] - named_bytes
    finally:
        tracemalloc.stop()
    fetch.future.cancel()
    await asyncio.sleep(0)
    assert 0.5 * NAMED_BYTES < named_bytes / PARTITIONS <= NAMED_BYTES
    assert 0.5 * WAITING_BYTES < waiting_bytes / PARTITIONS <= WAITING_BYTES
    assert held_bytes(request, PARTITIONS) == PARTITIONS * (NAMED_BYTES + WAITING_BYTES)
