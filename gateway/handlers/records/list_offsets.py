"""ListOffsets (key 2), v0-v10.

v0 lists offsets of segments before a time; v1 one offset and its timestamp; v2 isolation level; v4 leader epochs;
v6 flexible; v7 max timestamp (KIP-734); v8 earliest local, v9 latest tiered (KIP-405, KIP-1005): there is one tier;
v10 a timeout for remote storage.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from gateway.busy_time import run_part
from gateway.errors import KafkaError, error_code
from gateway.fan_out import Slices, fan_out, sliced
from gateway.log.partition_log import PartitionLog
from gateway.log.reading.log_start import START_AGE_S
from gateway.log.timestamps import FoundOffset, find_by_timestamp, find_max_timestamp, holds_before
from gateway.observability.logs import SparseLog
from gateway.pulsar.errors import PulsarError
from gateway.requests.brokers import RECORDS_EPOCH, check_leader
from gateway.requests.call import Call
from gateway.requests.reply import Reply
from gateway.topics.topic import Topic
from protocol.kafka.batch import CorruptBatch, InvalidBatch
from protocol.kafka.buffers import Buffer
from protocol.kafka.codec import encode_response
from protocol.kafka.errors import ErrorCode
from protocol.kafka.handwritten.list_offsets_response import FIRST_VERSION as FIRST_VERSION_BY_HAND
from protocol.kafka.handwritten.list_offsets_response import encode_listed
from protocol.kafka.messages.records import ListOffsetsRequest, ListOffsetsResponse

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
FIRST_VERSION = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
NOT_FOUND = FoundOffset(-1, -1)
ISOLATION_VERSION, READ_COMMITTED = 2, 1
END_AGE_S = 0.05
"""The maximum age of a known end, because others may write: native producers, or a gateway that has just lost the
partition. The broker has to read the last entry to name it, and Spark requests both ends with every 500 records that it
reads."""
AT_ONCE = 1_000
"""Larger requests are answered in slices."""
AHEAD = 0.6
"""Part of these ages after which a value is refreshed ahead: a client that asks often does not wait for the broker."""


_Asked = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition
_Topic = ListOffsetsResponse.ListOffsetsTopicResponse
_Partition = _Topic.ListOffsetsPartitionResponse


@dataclass(slots=True, kw_only=True)
class _Row(_Partition):
    now: Callable[[], int | None] | None = None
    """For the start or the end of a log: the offset as it is known later; None if it is not known."""

    def renew(self) -> None:
        known = None if self.now is None else self.now()
        self.offset = self.offset if known is None else known


log = SparseLog(structlog.get_logger())


def handle(call: Call[ListOffsetsRequest]) -> Reply:
    """Clients send one request per partition without waiting; no answer is older than the one before it."""
    before = call.client.listing
    answer = _at_once(call) if before is None else None
    if answer is not None:
        return Reply(answer)
    client = call.client
    listing = client.listing = run_part(_look_up(call, before))

    def forget(answered: asyncio.Future[ListOffsetsResponse]) -> None:
        if client.listing is answered:  # the future holds the logs
            client.listing = None

    listing.add_done_callback(forget)
    return Reply.later(listing)


def _at_once(call: Call[ListOffsetsRequest]) -> ListOffsetsResponse | None:
    """The answer, if all of it is known, and it is not large."""
    topics = call.request.topics
    if len(topics) > AT_ONCE or sum(len(topic.partitions) for topic in topics) > AT_ONCE:
        return None
    rows: dict[tuple[str, int], _Row] = {}
    for topic in call.request.topics:
        for part in topic.partitions:
            key = topic.name, part.partition_index
            found = None if call.version == 0 or key in rows else _at_hand(call, topic.name, part)
            if found is None:
                return None
            rows[key] = _row(part, found)
    left = iter(rows.values())
    return ListOffsetsResponse(
        topics=[_Topic(name=topic.name, partitions=[next(left) for _ in topic.partitions]) for topic in topics]
    )


def _at_hand(call: Call[ListOffsetsRequest], name: str, part: _Asked) -> FoundOffset | None:
    """The offset, if it is known without asking Pulsar; None also if there is an error to return."""
    try:
        topic = _checked(call, call.cluster.topics.cached(name), part)
    except KafkaError:
        return None
    partition_log = call.cluster.logs.find(topic.name, part.partition_index)
    if partition_log is None:
        return None
    start = partition_log.start
    if part.timestamp == EARLIEST and start.checked_within(START_AGE_S):
        start.refresh_ahead(START_AGE_S * AHEAD)
        return FoundOffset(start.offset, -1)
    if part.timestamp == LATEST and partition_log.end.checked_within(END_AGE_S):
        end = _known_end(partition_log, read_committed=_is_read_committed(call))
        partition_log.end.refresh_ahead(END_AGE_S * AHEAD)
        return None if end is None else FoundOffset(end, -1)
    return None


def _is_read_committed(call: Call[ListOffsetsRequest]) -> bool:
    return call.version >= ISOLATION_VERSION and call.request.isolation_level == READ_COMMITTED


def _known_end(partition_log: PartitionLog, *, read_committed: bool) -> int | None:
    """The end of what a client with that isolation level may read; None until the open transactions are known."""
    if not read_committed:
        return partition_log.end_offset
    return partition_log.transactions.last_stable_offset if partition_log.transactions.loaded else None


async def _end(partition_log: PartitionLog, *, read_committed: bool) -> int:
    """Raises PulsarError, KafkaError and TimeoutError."""
    while (end := _known_end(partition_log, read_committed=read_committed)) is None:
        await partition_log.transactions.prepare()
    return end


async def _look_up(
    call: Call[ListOffsetsRequest], before: asyncio.Future[ListOffsetsResponse] | None
) -> ListOffsetsResponse:
    slices, times = Slices(), Counter[tuple[str, int]]()
    keys: list[tuple[str, int, int, int]] = []
    distinct: dict[tuple[str, int, int, int], tuple[str, _Asked]] = {}  # v0 may ask for the same again and again
    for topic in call.request.topics:
        await slices.pause()
        for part in topic.partitions:
            await slices.pause()
            times[topic.name, part.partition_index] += 1
            key = topic.name, part.partition_index, part.timestamp, part.max_num_offsets
            keys.append(key)
            distinct[key] = topic.name, part

    async def answer(named: tuple[str, _Asked]) -> _Row:
        name, part = named
        duplicate = call.version >= 1 and times[name, part.partition_index] > 1
        return await _answer(call, name, part, duplicate=duplicate)

    answers = await fan_out(answer, list(distinct.values()))
    found = {key: row async for key, row in sliced(zip(distinct, answers, strict=True))}
    rows = [found[key] async for key in sliced(keys)]
    if before is not None:
        await asyncio.wait([before])
        async for row in sliced(rows):
            row.renew()
    left, topics = iter(rows), list[_Topic]()
    for topic in call.request.topics:
        await slices.pause()
        topics.append(_Topic(name=topic.name, partitions=[next(left) async for _ in sliced(topic.partitions)]))
    return ListOffsetsResponse(topics=topics)


def encode(
    kind: type[ListOffsetsResponse], version: int, correlation_id: int, response: ListOffsetsResponse
) -> list[Buffer]:
    if version < FIRST_VERSION_BY_HAND:
        return encode_response(kind, version, correlation_id, response)
    return [encode_listed(version, correlation_id, response.topics, response.throttle_time_ms)]


async def _answer(call: Call[ListOffsetsRequest], name: str, part: _Asked, *, duplicate: bool) -> _Row:
    try:
        _check_asked(call.version, part.timestamp, duplicate=duplicate)
        partition_log = await _log(call, name, part)
        if call.version == 0:  # the only version that returns a list
            offsets = await _old_style(partition_log, part)
            return _Row(partition_index=part.partition_index, old_style_offsets=offsets)
        found = await _find(call, partition_log, part.timestamp)
    except (KafkaError, PulsarError, CorruptBatch, InvalidBatch, TimeoutError, OSError) as error:
        code = error_code(error)
        call.count_error(code)
        log.info("list offsets", topic=name, partition=part.partition_index, error=str(error))
        return _Row(partition_index=part.partition_index, error_code=code)
    row = _row(part, found)
    if part.timestamp in {LATEST, EARLIEST, EARLIEST_LOCAL}:
        row.now = partial(_known_now, call, name, part)
    return row


def _known_now(call: Call[ListOffsetsRequest], name: str, part: _Asked) -> int | None:
    """Of the log that is open now, which may not be the one that was asked."""
    partition_log = call.cluster.logs.find(name, part.partition_index)
    if partition_log is None:
        return None
    if part.timestamp == LATEST:
        return _known_end(partition_log, read_committed=_is_read_committed(call))
    return partition_log.start.offset


def _row(part: _Asked, found: FoundOffset) -> _Row:
    epoch = -1 if found.offset < 0 else RECORDS_EPOCH
    return _Row(
        partition_index=part.partition_index, timestamp=found.timestamp, offset=found.offset, leader_epoch=epoch
    )


async def _log(call: Call[ListOffsetsRequest], name: str, part: _Asked) -> PartitionLog:
    """Raises KafkaError and PulsarError."""
    topic = _checked(call, await call.topics.get(name), part)
    return await call.cluster.logs.open(topic, part.partition_index, whose=call.client.number)


def _check_asked(version: int, timestamp: int, *, duplicate: bool) -> None:
    """Raises KafkaError for what is wrong whether there is the partition or not."""
    if duplicate:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if timestamp < 0 and version < FIRST_VERSION.get(timestamp, version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _checked(call: Call[ListOffsetsRequest], topic: Topic | None, part: _Asked) -> Topic:
    """Raises KafkaError."""
    if call.version >= ISOLATION_VERSION and call.request.isolation_level not in {0, READ_COMMITTED}:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    if topic is None or not 0 <= part.partition_index < topic.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    check_leader(call, topic.name, part.partition_index, part.current_leader_epoch)
    return topic


async def _find(call: Call[ListOffsetsRequest], partition_log: PartitionLog, timestamp: int) -> FoundOffset:
    age_s = time.perf_counter() - call.started  # both ends of a log that was opened for this request are known
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        await partition_log.start.refresh(at_most_every_s=max(START_AGE_S, age_s))
        return FoundOffset(partition_log.start.offset, -1)
    if timestamp == LATEST_TIERED:
        return NOT_FOUND
    if timestamp == LATEST:
        await partition_log.end.refresh(at_most_every_s=max(END_AGE_S, age_s))
        return FoundOffset(await _end(partition_log, read_committed=_is_read_committed(call)), -1)
    await partition_log.end.refresh()
    if timestamp == MAX_TIMESTAMP:
        found = await find_max_timestamp(partition_log)
    else:
        found = await find_by_timestamp(partition_log, timestamp)
    # The end after the search: the record found may have been written during it, and then mostly is the latest one.
    end = await _end(partition_log, read_committed=_is_read_committed(call))
    return found if found is not None and found.offset < end else NOT_FOUND


async def _old_style(partition_log: PartitionLog, part: _Asked) -> list[int]:
    """v0: at most max_num_offsets offsets of segments before the time, newest first; a log here is one segment.

    The time at which records were stored counts, as in Kafka: records of old producers have no timestamps.
    """
    if part.max_num_offsets < 0:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    await partition_log.end.refresh()
    await partition_log.start.refresh(at_most_every_s=START_AGE_S)
    start, end = partition_log.start.offset, partition_log.end_offset
    if part.timestamp == LATEST or part.timestamp >= time.time() * 1000:
        return ([end, start] if end > start else [start])[: part.max_num_offsets]
    if part.timestamp == EARLIEST or (end > start and await holds_before(partition_log, part.timestamp)):
        return [start][: part.max_num_offsets]
    return []
