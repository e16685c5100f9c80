"""ListOffsets returns known offsets immediately, and waits for Pulsar for others."""

from __future__ import annotations

import asyncio
import struct
import time
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from gateway import fan_out
from gateway.handlers.records import list_offsets
from gateway.handlers.records.list_offsets import END_AGE_S
from gateway.log.reading.log_start import START_AGE_S
from gateway.log.timestamps import FoundOffset
from gateway.requests.reply import Reply
from protocol.kafka.batch import InvalidBatch
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import ListOffsetsRequest, ListOffsetsResponse

_Topic = ListOffsetsRequest.ListOffsetsTopic
_Partition = _Topic.ListOffsetsPartition
LATEST, EARLIEST, MAX_TIMESTAMP, NOW = -1, -2, -3, 1_700_000_000_000


NEW, AGEING, OLD = 0.0, 0.7, 1.1
"""In units of the age at which an end is no longer valid."""


class FakeLog:
    """Its ends move when they are read."""

    def __init__(self, age: float) -> None:
        self.asked_ahead: list[str] = []
        self.end_offset = 10
        self.start = SimpleNamespace(
            offset=3,
            checked_within=lambda seconds: age * START_AGE_S < seconds,
            refresh=self._refresh_start,
            refresh_ahead=lambda seconds: self._ahead("start", age * START_AGE_S >= seconds),
        )
        self.end = SimpleNamespace(
            checked_within=lambda seconds: age * END_AGE_S < seconds,
            refresh=self._refresh_end,
            refresh_ahead=lambda seconds: self._ahead("end", age * END_AGE_S >= seconds),
        )

    def _ahead(self, what: str, due: bool) -> None:
        if due:
            self.asked_ahead.append(what)

    async def _refresh_end(self, *, at_most_every_s: float = 0) -> None:
        self.end_offset = max(11, self.end_offset)  # on a busy machine, a test may have moved it before

    async def _refresh_start(self, *, at_most_every_s: float) -> None:
        self.start.offset = 4


def call(
    log: FakeLog, *partitions: tuple[int, int], version: int = 9, leads: bool = True, isolation: int = 0,
    client: Any = None, many: int = 2,
) -> Any:  # fmt: skip
    """Rows of ``(partition, timestamp)``, for a topic with two partitions, or ``many``."""
    topic = SimpleNamespace(name="t", partitions=many)
    cluster = SimpleNamespace(
        topics=SimpleNamespace(cached=lambda name: topic, get=AsyncMock(return_value=topic)),
        logs=SimpleNamespace(find=lambda *_: log, open=AsyncMock(return_value=log)),
        fleet=SimpleNamespace(epoch=0, leads=lambda *_: leads),
    )
    rows = [_Partition(partition_index=number, timestamp=timestamp) for number, timestamp in partitions]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[_Topic(name="t", partitions=rows)])
    made = SimpleNamespace(
        version=version, request=request, cluster=cluster, topics=cluster.topics, count_error=lambda code: None,
        client=client or SimpleNamespace(listing=None, number=1), started=time.perf_counter(),
    )  # fmt: skip
    return cast(Any, made)


async def answered(reply: Reply) -> list[tuple[int, int]]:
    """(error code, offset) of each partition."""
    async with asyncio.timeout(5):
        response: Any = await reply.result()
    return [(part.error_code, part.offset) for topic in response.topics for part in topic.partitions]


async def test_known_ends_are_returned_at_once() -> None:
    log = FakeLog(NEW)
    outcome = list_offsets.handle(call(log, (0, EARLIEST), (1, LATEST)))
    assert outcome.future is None
    assert await answered(outcome) == [(0, 3), (0, 10)]
    assert not log.asked_ahead


async def test_ageing_ends_are_returned_at_once_and_refreshed() -> None:
    log = FakeLog(AGEING)
    assert await answered(list_offsets.handle(call(log, (0, EARLIEST), (1, LATEST)))) == [(0, 3), (0, 10)]
    assert log.asked_ahead == ["start", "end"]


async def test_old_ends_are_read_again() -> None:
    outcome = list_offsets.handle(call(FakeLog(OLD), (0, EARLIEST), (1, LATEST)))
    assert outcome.future is not None
    assert await answered(outcome) == [(0, 4), (0, 11)]


@pytest.mark.parametrize(
    ("partitions", "arguments", "code"),
    [
        ([(2, LATEST)], {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([(0, LATEST)], {"leads": False}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ([(0, LATEST)], {"isolation": 2}, ErrorCode.UNKNOWN_SERVER_ERROR),
        ([(0, LATEST), (0, EARLIEST)], {}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_errors_are_returned_whatever_is_known(
    partitions: list[tuple[int, int]], arguments: dict[str, Any], code: ErrorCode
) -> None:
    outcome = list_offsets.handle(call(FakeLog(NEW), *partitions, **arguments))
    assert await answered(outcome) == [(code, -1)] * len(partitions)


async def test_the_oldest_version_answers_lists() -> None:
    request = call(FakeLog(NEW), (0, LATEST), version=0)
    request.request.topics[0].partitions[0].max_num_offsets = 5
    response: Any = await list_offsets.handle(request).result()
    assert [part.old_style_offsets for part in response.topics[0].partitions] == [[11, 4]]
    assert b"".join(list_offsets.encode(ListOffsetsResponse, 0, 7, response)).endswith(struct.pack(">iqq", 2, 11, 4))


@pytest.mark.parametrize(
    ("timestamp", "held", "offsets"),
    [(NOW, False, []), (NOW, True, [4]), (1 << 62, True, [11, 4]), (1 << 62, False, [11, 4])],
)
async def test_the_oldest_version_asks_when_records_were_stored(
    timestamp: int, held: bool, offsets: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for their timestamps: records of old producers have none, and would all be older than any time."""
    monkeypatch.setattr(list_offsets, "holds_before", AsyncMock(return_value=held))
    request = call(FakeLog(NEW), (0, timestamp), version=0)
    request.request.topics[0].partitions[0].max_num_offsets = 5
    response: Any = await list_offsets.handle(request).result()
    assert [part.old_style_offsets for part in response.topics[0].partitions] == [offsets]


async def test_records_that_cannot_be_read_are_one_partitions_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_offsets, "find_by_timestamp", AsyncMock(side_effect=InvalidBatch("garbage")))
    asked = call(FakeLog(NEW), (0, NOW), (1, LATEST))
    answer: Any = await list_offsets.handle(asked).result()
    codes = [row.error_code for topic in answer.topics for row in topic.partitions]
    assert codes == [ErrorCode.INVALID_RECORD, 0]


@pytest.mark.parametrize("timestamp", [MAX_TIMESTAMP, NOW])
async def test_a_record_that_is_written_during_the_search_is_found(
    timestamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It mostly is the latest one: of a log that is always written to, nothing would ever be found."""

    async def find(log: FakeLog, *_: int) -> FoundOffset:
        log.end_offset += 1
        return FoundOffset(log.end_offset - 1, NOW)

    monkeypatch.setattr(list_offsets, "find_by_timestamp", find)
    monkeypatch.setattr(list_offsets, "find_max_timestamp", find)
    assert await answered(list_offsets.handle(call(FakeLog(NEW), (0, timestamp)))) == [(0, 11)]


async def test_no_answer_is_older_than_the_one_before_it() -> None:
    """Clients send the next request before they have the response."""
    client = SimpleNamespace(listing=None, number=1)
    log, slow, fast = FakeLog(OLD), asyncio.Event(), asyncio.Event()
    waits = iter([slow, fast])

    async def refresh(*, at_most_every_s: float = 0) -> None:
        await next(waits).wait()

    log.end.refresh = refresh
    first = list_offsets.handle(call(log, (0, LATEST), client=client))
    await asyncio.sleep(0)
    second = list_offsets.handle(call(log, (0, LATEST), client=client))
    fast.set()
    for _ in range(5):
        await asyncio.sleep(0)
    log.end_offset = 12  # which the first response has
    slow.set()
    assert await answered(first) == [(0, 12)]
    assert await answered(second) == [(0, 12)]


@pytest.mark.parametrize("timestamp", [EARLIEST, LATEST])
async def test_an_answer_that_waits_has_what_the_one_before_it_has_found_last(timestamp: int) -> None:
    """The first request names so many partitions that it reads the last one after the second request has."""
    client = SimpleNamespace(listing=None, number=1)
    last, others, asked = 64, FakeLog(OLD), asyncio.Event()

    async def refresh(*, at_most_every_s: float = 0) -> None:
        await asked.wait()

    others.start.refresh = others.end.refresh = refresh
    logs = [FakeLog(OLD)]

    async def open_log(topic: Any, partition: int, **_: Any) -> FakeLog:
        return logs[-1] if partition == last else others

    first = call(others, *((number, timestamp) for number in range(last + 1)), client=client, many=last + 1)
    second = call(others, (last, timestamp), client=client, many=last + 1)
    opened = SimpleNamespace(find=lambda _, partition: logs[-1] if partition == last else others, open=open_log)
    first.cluster.logs = second.cluster.logs = opened
    replies = [list_offsets.handle(first), list_offsets.handle(second)]
    for _ in range(20):
        await asyncio.sleep(0)
    opened_again = FakeLog(OLD)
    opened_again.start.offset, opened_again.end_offset = 9, 20
    opened_again.start.refresh = opened_again.end.refresh = AsyncMock()
    logs.append(opened_again)
    asked.set()
    before, after = [await answered(reply) for reply in replies]
    assert after[0] == before[last] == (0, 9 if timestamp == EARLIEST else 20)


async def test_what_is_at_hand_waits_for_an_answer_before_it() -> None:
    client = SimpleNamespace(listing=None, number=1)
    old, new, asked = FakeLog(OLD), FakeLog(NEW), asyncio.Event()

    async def refresh(*, at_most_every_s: float = 0) -> None:
        await asked.wait()

    old.end.refresh = refresh
    first = list_offsets.handle(call(old, (0, LATEST), client=client))
    second = list_offsets.handle(call(new, (0, LATEST), client=client))
    for _ in range(5):
        await asyncio.sleep(0)
    assert second.future is not None and not second.future.done()
    new.end_offset = 12
    asked.set()
    assert await answered(first) == [(0, 10)]
    assert await answered(second) == [(0, 12)]


async def test_so_many_partitions_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may name very many."""
    monkeypatch.setattr(fan_out, "SLICE_S", 60.0)
    log, busy, most = FakeLog(OLD), 0, 0

    async def refresh(*, at_most_every_s: float) -> None:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(0)
        busy -= 1

    log.start.refresh = refresh
    found = await answered(list_offsets.handle(call(log, *((number, EARLIEST) for number in range(1_000)), many=1_000)))
    assert found == [(0, 3)] * 1_000
    assert 1 < most <= 64


@pytest.mark.parametrize("partitions", [0, 1, 2])
async def test_a_large_request_is_answered_in_slices(monkeypatch: pytest.MonkeyPatch, partitions: int) -> None:
    """Also if all is known, and if its topics have no partitions."""
    monkeypatch.setattr(fan_out, "SLICE_S", 0.0)
    monkeypatch.setattr(list_offsets, "AT_ONCE", 4)
    asked = call(FakeLog(NEW), many=50)
    numbers = [range(each * partitions, (each + 1) * partitions) for each in range(5)]
    asked.request.topics = [
        _Topic(name=f"t{each % 2}", partitions=[_Partition(partition_index=n, timestamp=EARLIEST) for n in mine])
        for each, mine in enumerate(numbers)
    ]
    answering = asyncio.create_task(list_offsets.handle(asked).result())
    turns = 0
    while not answering.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 10, "to read the request, and to make the response"
    response: Any = answering.result()
    found = [(topic.name, [part.partition_index for part in topic.partitions]) for topic in response.topics]
    assert found == [(f"t{each % 2}", [*numbers[each]]) for each in range(5)]


async def test_what_is_asked_again_and_again_is_looked_up_once() -> None:
    """Version 0 refuses no duplicates."""
    log = FakeLog(NEW)
    asked = call(log, *[(0, LATEST)] * 1_000, version=0)
    response: Any = await list_offsets.handle(asked).result()
    [topic] = response.topics
    assert [part.old_style_offsets for part in topic.partitions] == [[11]] * 1_000
    assert asked.cluster.logs.open.await_count == 1
