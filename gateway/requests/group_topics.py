"""The partitions in requests about offsets: look-ups in the catalog, and requests with very many of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import structlog

from gateway.fan_out import Slices, fan_out, sliced
from gateway.observability.logs import SparseLog
from gateway.pulsar.errors import PulsarError
from gateway.requests.call import Call
from gateway.requests.reply import Reply
from gateway.topics.topic import Topic
from protocol.kafka.errors import ErrorCode

PART_ROWS = 2_000
"""The rows of a request that are handled in one step: about 10 ms of work, before and after the commit is durable."""

log = SparseLog(structlog.get_logger())


class _Partition(Protocol):
    partition_index: int


class NamedTopic(Protocol):
    """A topic of a request."""

    name: str

    @property
    def partitions(self) -> Sequence[_Partition]: ...


class PartitionCounts(NamedTuple):
    """The partition count of each topic: 0 if there is no such topic, None if Pulsar did not answer."""

    by_topic: Mapping[str, int | None]
    topic_ids: Mapping[str, bytes]
    """The ids of the topics that exist."""

    def error(self, topic: str, partition: int) -> ErrorCode:
        count = self.by_topic[topic]
        if count is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE if 0 <= partition < count else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def in_parts(handle: Callable[[Call[Any]], Reply]) -> Callable[[Call[Any]], Reply]:
    """The handler of requests whose rows are independent: those with very many rows are handled part by part."""

    def handle_parts(call: Call[Any]) -> Reply:
        topics = call.request.topics
        if len(topics) <= PART_ROWS and sum(max(1, len(topic.partitions)) for topic in topics) <= PART_ROWS:
            return handle(call)
        return Reply.after(_one_by_one(call, handle, _parts(topics)))

    return handle_parts


async def _one_by_one(call: Call[Any], handle: Callable[[Call[Any]], Reply], parts: Iterable[list[Any]]) -> Reply:
    """An error of a whole part is that of the request; the client retries then."""
    rows: dict[str, Any] = {}
    response: Any = None
    slices = Slices()
    for part in parts:
        await slices.pause()
        response = await handle(call.asking(replace(call.request, topics=part))).result()
        if getattr(response, "error_code", 0):
            return Reply(response)
        for topic in response.topics:
            known = rows.setdefault(topic.name, topic)
            if known is not topic:
                known.partitions += topic.partitions
    return Reply(replace(response, topics=[*rows.values()]))


def _parts(topics: Iterable[Any]) -> Iterator[list[Any]]:
    """The topics in lists of PART_ROWS partitions at most; topics count as one partition if they have none."""
    part: list[Any] = []
    room = PART_ROWS
    for topic in topics:
        rows = topic.partitions
        while len(rows) > room:
            yield [*part, replace(topic, partitions=rows[:room])]
            rows, part, room = rows[room:], [], PART_ROWS
        part.append(topic if rows is topic.partitions else replace(topic, partitions=rows))
        room -= max(1, len(rows))
        if room <= 0:
            yield part
            part, room = [], PART_ROWS
    if part:
        yield part


def with_counts(call: Call, topics: Iterable[NamedTopic], then: Callable[[PartitionCounts], Reply]) -> Reply:
    """`then` gets the counts for a request's rows: at once if they are cached, otherwise after a look-up in Pulsar."""
    highest = highest_partitions(topics)
    counts = cached_counts(call, highest)
    if counts is not None:
        return then(counts)

    async def look_up() -> Reply:
        return then(await look_up_counts(call, highest))

    return Reply.after(look_up())


def answered_rows(topics: Iterable[NamedTopic], counts: PartitionCounts) -> list[tuple[str, list[int]]]:
    """The topics and partitions of an answer, as Kafka has them.

    What the coordinator does not get comes first, and if there is any, each topic has one row. A topic that exists has
    no row without partitions.
    """
    refused: dict[str, list[int]] = {}
    others: list[tuple[str, list[int]]] = []
    for topic in topics:
        numbers = [partition.partition_index for partition in topic.partitions]
        wrong = [number for number in numbers if counts.error(topic.name, number)]
        if wrong or not counts.by_topic[topic.name]:
            refused.setdefault(topic.name, []).extend(wrong)
        if len(wrong) < len(numbers):
            others.append((topic.name, [number for number in numbers if not counts.error(topic.name, number)]))
    if not refused:
        return others
    for name, numbers in others:
        refused.setdefault(name, []).extend(numbers)
    return [*refused.items()]


def highest_partitions(topics: Iterable[NamedTopic]) -> dict[str, int]:
    """The highest partition number that a request's rows name, by topic."""
    highest: dict[str, int] = {}
    for topic in topics:
        number = highest.get(topic.name, 0)
        for partition in topic.partitions:
            number = max(number, partition.partition_index)
        highest[topic.name] = number
    return highest


def cached_counts(call: Call, highest: Mapping[str, int]) -> PartitionCounts | None:
    """The counts that are cached; None if a topic, or its partition with the highest number, is not cached."""
    counts: dict[str, int | None] = {}
    topic_ids: dict[str, bytes] = {}
    for name, partition in highest.items():
        topic = call.cluster.topics.cached(name)
        if topic is None or partition >= topic.partitions:
            return None
        counts[name], topic_ids[name] = topic.partitions, topic.topic_id.bytes
    return PartitionCounts(counts, topic_ids)


async def look_up_counts(call: Call, highest: Mapping[str, int]) -> PartitionCounts:
    found = await fan_out(lambda each: _look_up(call, *each), list(highest.items()))
    counts: dict[str, int | None] = {}
    topic_ids: dict[str, bytes] = {}
    async for name, topic in sliced(zip(highest, found, strict=True)):
        if isinstance(topic, Topic):
            counts[name], topic_ids[name] = topic.partitions, topic.topic_id.bytes
        else:
            counts[name] = topic
    return PartitionCounts(counts, topic_ids)


async def _look_up(call: Call, name: str, partition: int) -> Topic | int | None:
    """0 if there is no such topic, None if Pulsar did not answer."""
    try:
        topic = await call.topics.with_partition(name, partition)
    except PulsarError as error:
        log.warning("cannot look up topic", topic=name, error=str(error))
        return None
    return 0 if topic is None else topic
