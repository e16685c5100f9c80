"""OffsetFetch (key 9), v0-v9.

v0 and v1 have no top-level error; v2 null topics mean all; v3 throttle time; v5 leader epochs; v6 flexible; v7
stable offsets only (KIP-447); v8 several groups (KIP-709); v9 member epochs (KIP-848). v0 reads the same offsets.
A partition without a committed offset is looked up among Pulsar's subscriptions: the group may come from there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

import structlog

from coordinator.group.messages import FetchedOffset, FetchOffsetsRequest, FetchOffsetsResponse
from coordinator.topics import DeletedTopic, TopicPartition
from gateway.busy_time import run_part
from gateway.errors import KafkaError
from gateway.fan_out import Slices, fan_out, sliced
from gateway.observability.logs import SparseLog
from gateway.pulsar.errors import PulsarError
from gateway.requests.call import Call
from gateway.requests.group_topics import PART_ROWS
from gateway.requests.reply import Reply
from gateway.topics.topic import Topic
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.groups import OffsetFetchRequest, OffsetFetchResponse

OWN_ERROR_VERSION, SEVERAL_VERSION = 2, 8
REPEATED_CHARS = 1024 * 1024
OFFSET_CHARS = 64
"""About the size of an offset in the answer, without its metadata."""
NEVER_MS = 0
"""Offsets without a topic id were committed before this time."""
_Topic = OffsetFetchResponse.OffsetFetchResponseTopic
_Partition = _Topic.OffsetFetchResponsePartition
_Group = OffsetFetchResponse.OffsetFetchResponseGroup
_TopicOfGroup = _Group.OffsetFetchResponseTopics
_PartitionOfGroup = _TopicOfGroup.OffsetFetchResponsePartitions
Topic_ = TypeVar("Topic_")

log = SparseLog(structlog.get_logger())


class _AskedTopic(Protocol):
    name: str
    partition_indexes: list[int]


class _Room:
    """For what a request names again: a few bytes, such as those of a group, are answered by thousands.

    Kafka has no such limit; its clients name things once.
    """

    def __init__(self) -> None:
        self._left_chars = REPEATED_CHARS
        self._partitions: set[tuple[str, TopicPartition]] = set()
        self._groups: set[str] = set()
        self.too_large: set[str] = set()
        """Groups for all offsets of which there was no room."""

    def has_metadata(self, group_id: str, partition: TopicPartition, metadata: str) -> bool:
        """False if the partition is named again, and there is no room left."""
        if (group_id, partition) in self._partitions:
            return self._take(len(metadata))
        self._partitions.add((group_id, partition))
        return True

    async def has_all(self, group_id: str, offsets: Mapping[TopicPartition, FetchedOffset]) -> bool:
        """For a group whose offsets are all asked for. False if it is named again, and there is no room left."""
        if group_id not in self._groups:
            self._groups.add(group_id)
            return True
        chars = [OFFSET_CHARS + len(fetched.metadata) async for fetched in sliced(offsets.values())]
        if self._take(sum(chars)):
            return True
        self.too_large.add(group_id)
        return False

    def _take(self, chars: int) -> bool:
        if chars > self._left_chars:
            return False
        self._left_chars -= chars
        return True


def handle(call: Call[OffsetFetchRequest]) -> Reply:
    """Runs beside the request: Pulsar may have to be asked about many groups."""
    return Reply.later(run_part(_answer(call)))


async def _answer(call: Call[OffsetFetchRequest]) -> OffsetFetchResponse:
    request = call.request
    if call.version >= SEVERAL_VERSION:
        room = _Room()
        return OffsetFetchResponse(groups=await fan_out(lambda group: _group(call, group, room), request.groups))
    asked = FetchOffsetsRequest(request.group_id, await _partitions(request.topics), request.require_stable)
    answer = await _fetch_in_parts(call, asked)
    named, offsets = request.topics, answer.offsets
    if answer.error and call.version < OWN_ERROR_VERSION:
        offsets = dict.fromkeys(asked.partitions or (), FetchedOffset(error=answer.error))
    elif answer.error:
        named = []
    topics = await _topics(named, offsets, _Topic, _Partition, partial(_Room().has_metadata, asked.group_id))
    return OffsetFetchResponse(error_code=answer.error, topics=topics)


async def _group(
    call: Call[OffsetFetchRequest], group: OffsetFetchRequest.OffsetFetchRequestGroup, room: _Room
) -> _Group:
    if group.topics is None and group.group_id in room.too_large:
        return _refused(call, group)
    asked = FetchOffsetsRequest(
        group.group_id, await _partitions(group.topics), call.request.require_stable, group.member_id,
        group.member_epoch,
    )  # fmt: skip
    answer = await _fetch_in_parts(call, asked)
    if group.topics is None and not await room.has_all(group.group_id, answer.offsets):
        return _refused(call, group)
    named = [] if answer.error else group.topics
    has_room = partial(room.has_metadata, group.group_id)
    topics = await _topics(named, answer.offsets, _TopicOfGroup, _PartitionOfGroup, has_room)
    return _Group(group_id=group.group_id, error_code=answer.error, topics=topics)


def _refused(call: Call, group: OffsetFetchRequest.OffsetFetchRequestGroup) -> _Group:
    call.count_error(ErrorCode.INVALID_REQUEST)
    return _Group(group_id=group.group_id, error_code=ErrorCode.INVALID_REQUEST)


async def _fetch_in_parts(call: Call, asked: FetchOffsetsRequest) -> FetchOffsetsResponse:
    """A part with an error is the answer: the client retries then."""
    if asked.partitions is None or len(asked.partitions) <= PART_ROWS:
        return await _fetch(call, asked)
    offsets: dict[TopicPartition, FetchedOffset] = {}
    slices = Slices()
    for at in range(0, len(asked.partitions), PART_ROWS):
        await slices.pause()
        answer = await _fetch(call, replace(asked, partitions=asked.partitions[at : at + PART_ROWS]))
        if answer.error:
            return answer
        offsets.update(answer.offsets)
    return FetchOffsetsResponse(ErrorCode.NONE, offsets)


async def _fetch(call: Call, asked: FetchOffsetsRequest) -> FetchOffsetsResponse:
    answer = call.cluster.groups.run(asked.group_id, lambda coordinator, now_ms: coordinator.fetch_offsets(asked))
    call.count_error(answer.error)
    offsets = {partition: fetched async for partition, fetched in sliced(answer.offsets.items())}
    try:
        await _remove_deleted_topics(call, asked, offsets)
        committed = {each: fetched.offset async for each, fetched in sliced(offsets.items()) if not fetched.error}
        found = await call.cluster.group_service.subscribed_offsets(asked.group_id, committed)
    except (PulsarError, KafkaError, TimeoutError) as error:
        log.warning("cannot look up subscriptions", group=asked.group_id, error=str(error) or type(error).__name__)
        if isinstance(error, PulsarError) and not error.retriable:
            return FetchOffsetsResponse(answer.error, offsets)
        # Without its offset the client would start at the wrong place; with this error it asks again.
        return FetchOffsetsResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    async for partition, offset in sliced(found.items()):
        offsets[partition] = FetchedOffset(offset)
    return FetchOffsetsResponse(answer.error, offsets)


async def _remove_deleted_topics(
    call: Call, asked: FetchOffsetsRequest, offsets: dict[TopicPartition, FetchedOffset]
) -> None:
    """Removes offsets of a deleted topic, even if there is a new topic with its name. Raises PulsarError.

    A request for all offsets uses the cached topics, however old: exporters would otherwise cause many lookups.
    """
    topics = call.cluster.topics

    def is_known(name: str, topic_id: bytes) -> bool:
        if asked.partitions is None:
            return topics.cached_name(uuid.UUID(bytes=topic_id)) == name
        return _is_current(topics.cached(name), topic_id)

    async def look_up(named: tuple[str, bytes]) -> Topic | None:
        # The cached topic may be older than the commit.
        return await call.topics.get(named[0], fresh=topics.cached(named[0]) is not None)

    ids = {(each.topic, fetched.topic_id) async for each, fetched in sliced(offsets.items()) if fetched.topic_id}
    doubtful = [(name, topic_id) async for name, topic_id in sliced(ids) if not is_known(name, topic_id)]
    if not doubtful:
        return
    found = await fan_out(look_up, doubtful)
    gone = {
        DeletedTopic(name, topic_id, NEVER_MS)
        async for (name, topic_id), topic in sliced(zip(doubtful, found, strict=True))
        if topic is not None and not _is_current(topic, topic_id)
    }
    call.cluster.group_service.forget_topics(gone)
    ids_gone = {(topic.name, topic.topic_id) for topic in gone}
    async for each, fetched in sliced(offsets.items()):
        if (each.topic, fetched.topic_id) in ids_gone:
            offsets[each] = FetchedOffset()


def _is_current(topic: Topic | None, topic_id: bytes) -> bool:
    return topic is not None and topic.topic_id.bytes == topic_id


async def _partitions(topics: Iterable[_AskedTopic] | None) -> list[TopicPartition] | None:
    if topics is None:
        return None
    return [
        TopicPartition(topic.name, number)
        async for topic in sliced(topics)
        async for number in sliced(topic.partition_indexes)
    ]


async def _topics(
    asked: Sequence[_AskedTopic] | None,
    offsets: Mapping[TopicPartition, FetchedOffset],
    topic_row: Callable[..., Topic_],
    partition_row: Callable[..., object],
    has_room: Callable[[TopicPartition, str], bool],
) -> list[Topic_]:
    """The rows of the request, or of all offsets. They have the same fields in all versions, and different classes."""
    if asked is None:
        named = await _by_topic(offsets)
    else:
        named = [(each.name, each.partition_indexes) async for each in sliced(asked)]

    def row(each: TopicPartition) -> object:
        fetched = offsets[each]
        if asked is not None and not has_room(each, fetched.metadata):
            fetched = FetchedOffset(error=ErrorCode.INVALID_REQUEST)
        return partition_row(
            partition_index=each.partition, committed_offset=fetched.offset,
            committed_leader_epoch=fetched.leader_epoch, metadata=fetched.metadata, error_code=fetched.error,
        )  # fmt: skip

    return [
        topic_row(name=name, partitions=[row(TopicPartition(name, number)) async for number in sliced(numbers)])
        async for name, numbers in sliced(named)
    ]


async def _by_topic(offsets: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    numbers: dict[str, list[int]] = {}
    async for topic, partition in sliced(offsets):
        numbers.setdefault(topic, []).append(partition)
    return [*numbers.items()]
