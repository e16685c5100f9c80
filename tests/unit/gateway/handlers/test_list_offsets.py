"""ListOffsets tells what is known without waiting, and waits for Pulsar where it is not."""

from __future__ import annotations

import asyncio
import inspect
import struct
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse

from gateway.handlers import list_offsets
from gateway.handlers.call import Call
from gateway.handlers.list_offsets import END_AGE_S, START_AGE_S
from protocol.kafka.batch import InvalidBatch
from protocol.kafka.errors import ErrorCode

_Topic = ListOffsetsRequest.ListOffsetsTopic
_Partition = _Topic.ListOffsetsPartition
LATEST, EARLIEST, NOW = -1, -2, 1_700_000_000_000


NEW, AGEING, OLD = 0.0, 0.7, 1.1
"""Of the age at which an end counts no more."""


class FakeLog:
    """Its ends move when they are asked for."""

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
        self.end_offset = 11

    async def _refresh_start(self, *, at_most_every_s: float) -> None:
        self.start.offset = 4


def call(log: FakeLog, *partitions: tuple[int, int], version: int = 9, leads: bool = True, isolation: int = 0) -> Call:
    """Of ``(partition, timestamp)``, for a topic with two partitions."""
    topic = SimpleNamespace(name="t", partitions=2)
    services = SimpleNamespace(
        topics=SimpleNamespace(cached=lambda name: topic, get=AsyncMock(return_value=topic)),
        logs=SimpleNamespace(get=lambda *_: log, open=AsyncMock(return_value=log)),
        fleet=SimpleNamespace(epoch=0, leads=lambda *_: leads),
    )
    rows = [_Partition(partition_index=number, timestamp=timestamp) for number, timestamp in partitions]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[_Topic(name="t", partitions=rows)])
    made = SimpleNamespace(version=version, request=request, services=services, count_error=lambda code: None)
    return cast(Call, made)


async def answered(outcome: Any) -> list[tuple[int, int]]:
    """(error code, offset) of each partition."""
    async with asyncio.timeout(5):
        response = await outcome if inspect.isawaitable(outcome) else outcome
    return [(part.error_code, part.offset) for topic in response.topics for part in topic.partitions]


async def test_what_is_known_is_told_at_once() -> None:
    log = FakeLog(NEW)
    outcome = list_offsets.handle(call(log, (0, EARLIEST), (1, LATEST)))
    assert not inspect.isawaitable(outcome)
    assert await answered(outcome) == [(0, 3), (0, 10)]
    assert not log.asked_ahead


async def test_what_becomes_old_is_told_at_once_and_asked_for() -> None:
    log = FakeLog(AGEING)
    assert await answered(list_offsets.handle(call(log, (0, EARLIEST), (1, LATEST)))) == [(0, 3), (0, 10)]
    assert log.asked_ahead == ["start", "end"]


async def test_what_has_become_old_is_asked_for() -> None:
    outcome = list_offsets.handle(call(FakeLog(OLD), (0, EARLIEST), (1, LATEST)))
    assert inspect.isawaitable(outcome)
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
async def test_errors_are_told_whatever_is_known(
    partitions: list[tuple[int, int]], arguments: dict[str, Any], code: ErrorCode
) -> None:
    outcome = list_offsets.handle(call(FakeLog(NEW), *partitions, **arguments))
    assert await answered(outcome) == [(code, -1)] * len(partitions)


async def test_the_oldest_version_answers_lists() -> None:
    request = call(FakeLog(NEW), (0, LATEST), version=0)
    request.request.topics[0].partitions[0].max_num_offsets = 5
    response = await cast(Awaitable[Any], list_offsets.handle(request))
    assert [part.old_style_offsets for part in response.topics[0].partitions] == [[11, 4]]
    assert b"".join(list_offsets.encode(ListOffsetsResponse, 0, 7, response)).endswith(struct.pack(">iqq", 2, 11, 4))


async def test_records_that_cannot_be_read_are_one_partitions_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_offsets, "find_by_timestamp", AsyncMock(side_effect=InvalidBatch("garbage")))
    asked = call(FakeLog(NEW), (0, NOW), (1, LATEST))
    answer = await cast(Awaitable[Any], list_offsets.handle(asked))
    codes = [row.error_code for topic in answer.topics for row in topic.partitions]
    assert codes == [ErrorCode.INVALID_RECORD, 0]
