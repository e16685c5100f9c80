"""The fast path of OffsetCommit: requests that differ from an earlier one of their connection only in their offsets.

A consumer commits the same partitions repeatedly. Everything except the offsets is compared, not decoded. If all
offsets are stored, the response is the same as the earlier one. Any other request takes the general path
(`offset_commit`); this path has changed nothing then. So both paths give the same responses, and a test compares them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

from coordinator.group.messages import CommitRequest, CommitResponse, OffsetToCommit
from coordinator.topics import TopicPartition
from gateway.handlers.groups.offset_commit import response_of
from gateway.handlers.place import Place
from gateway.requests.call import Call
from gateway.requests.context import RequestContext
from gateway.requests.group_topics import PartitionCounts, answered_rows
from gateway.requests.policy import ALL_ALLOWED
from gateway.topics.topic import Topic
from protocol.kafka.acl import AclOperation, ResourceType
from protocol.kafka.codec import is_flexible, parse_header
from protocol.kafka.errors import ErrorCode
from protocol.kafka.handwritten.offset_commit_request import FIRST_VERSION, OFFSET, offset_positions
from protocol.kafka.messages.groups import OffsetCommitRequest

MAX_FRAME_BYTES = 16 * 1024
_KEY_BYTES, _CORRELATED_BYTES = 4, 8
"""The API's key and version; these and the correlation id."""


class KnownCommits:
    """The last request of the frequent kind on one connection."""

    __slots__ = ("_known", "_last_bytes")

    def __init__(self) -> None:
        self._known: KnownCommit | None = None
        self._last_bytes = 0

    def learn(self, call: Call[OffsetCommitRequest]) -> None:
        """Remember a decoded request, if it may be repeated: the previous one had the same size."""
        if call.frame is None or call.version < FIRST_VERSION or len(call.frame) > MAX_FRAME_BYTES:
            return
        last_bytes, self._last_bytes = self._last_bytes, len(call.frame)
        if last_bytes == self._last_bytes:
            self._known = KnownCommit.of(call, call.frame)

    def handle(self, frame: bytearray, context: RequestContext, place: Place) -> bool:
        """Handle a request with other offsets than the known one. Returns False if nothing was done."""
        return self._known is not None and self._known.handle(frame, context, place)

    def close(self) -> None:
        """Nothing waits here."""


class KnownCommit:
    """A request without its offsets, and values derived from it."""

    __slots__ = (
        "_answer_end", "_answer_start", "_answered", "_call", "_charges", "_groups", "_metrics", "_positions", "_rest",
        "_rows", "_size_bytes", "_topics",
    )  # fmt: skip

    def __init__(self, call: Call[OffsetCommitRequest], frame: bytearray, topics: Mapping[str, Topic]) -> None:
        """`topics` are those of the request."""
        self._call = replace(call, frame=None)
        self._charges = None if call.context.meter is None else call.context.meter.repeated(call)
        self._groups = call.cluster.groups
        self._topics = topics
        body = parse_header(memoryview(frame), flexible=is_flexible(OffsetCommitRequest, call.version)).body
        self._positions = offset_positions(call.version, memoryview(frame), body)
        self._size_bytes = len(frame)
        ends = [*self._positions, len(frame)]
        starts = [_CORRELATED_BYTES, *(position + OFFSET.size for position in self._positions)]
        self._rest = [(0, bytes(frame[:_KEY_BYTES]))]
        """Everything except the correlation id and the offsets, by position."""
        self._rest += [(start, bytes(frame[start:end])) for start, end in zip(starts, ends, strict=True)]
        self._rows = [
            (TopicPartition(topic.name, row.partition_index), row.committed_metadata, topics[topic.name].topic_id.bytes)
            for topic in call.request.topics
            for row in topic.partitions
        ]
        counts = PartitionCounts({name: topic.partitions for name, topic in topics.items()}, {})
        self._answered = answered_rows(call.request.topics, counts)
        stored = response_of(self._codes(dict.fromkeys((key for key, _, _ in self._rows), ErrorCode.NONE)))
        answer = b"".join(call.api.encode(call.api.response, call.version, 0, stored))
        self._answer_start, self._answer_end = answer[:_KEY_BYTES], answer[_CORRELATED_BYTES:]
        self._metrics = call.cluster.metrics.request(call.api.name, call.version)

    def _codes(self, answer: CommitResponse) -> Iterator[tuple[str, list[tuple[int, ErrorCode]]]]:
        for name, numbers in self._answered:
            yield name, [(number, answer[TopicPartition(name, number)]) for number in numbers]

    @classmethod
    def of(cls, call: Call[OffsetCommitRequest], frame: bytearray) -> KnownCommit | None:
        """None if a partition does not exist or is named twice, or none is named."""
        topics: dict[str, Topic] = {}
        for named in call.request.topics:
            topic = call.cluster.topics.cached(named.name)
            if topic is None or not all(0 <= row.partition_index < topic.partitions for row in named.partitions):
                return None
            topics[named.name] = topic
        keys = [(named.name, row.partition_index) for named in call.request.topics for row in named.partitions]
        return cls(call, frame, topics) if 0 < len(keys) == len(set(keys)) else None

    def handle(self, frame: bytearray, context: RequestContext, place: Place) -> bool:
        """Returns False if nothing was done."""
        if len(frame) != self._size_bytes or not self._may_commit(context):
            return False
        for position, rest in self._rest:
            if not frame.startswith(rest, position):
                return False
        started = time.perf_counter()
        offsets = {}
        for (key, metadata, topic_id), position in zip(self._rows, self._positions, strict=True):
            offset, leader_epoch = OFFSET.unpack_from(frame, position)
            offsets[key] = OffsetToCommit(offset, leader_epoch, metadata, topic_id=topic_id)
        correlation_id = bytes(frame[_KEY_BYTES:_CORRELATED_BYTES])
        request = self._call.request
        asked = CommitRequest(
            request.group_id, offsets, request.member_id, request.generation_id_or_member_epoch,
            request.group_instance_id, version=self._call.version,
        )  # fmt: skip
        place.api = self._call.api

        busy_s: float | None = None

        def reply(answer: CommitResponse) -> None:
            used_s = time.perf_counter() - started if busy_s is None else busy_s
            if any(answer.values()) or not self._is_charged(used_s):
                number = int.from_bytes(correlation_id, "big", signed=True)
                call = replace(self._call, correlation_id=number, started=started, busy_s=used_s)
                place.respond(call, response_of(self._codes(answer)))
            else:
                self._metrics.answered(time.perf_counter() - started)
                place.answer(self._answer_start + correlation_id + self._answer_end)

        self._groups.run(request.group_id, lambda coordinator, now_ms: coordinator.commit_offsets(asked, now_ms, reply))
        busy_s = time.perf_counter() - started
        return True

    def _is_charged(self, busy_s: float) -> bool:
        """Returns False if the general path has to charge the request."""
        return self._charges is None or self._charges.charge_within(0, busy_s)

    def _may_commit(self, context: RequestContext) -> bool:
        """The topics are unchanged, and the client may read them and their group."""
        known = self._call.cluster.topics
        for name, topic in self._topics.items():
            found = known.cached(name)
            if found is not topic:
                if found is None or found.topic_id != topic.topic_id or found.partitions < topic.partitions:
                    return False
                self._topics = {**self._topics, name: found}
        policy = context.policy
        return policy is ALL_ALLOWED or (
            policy.allows(AclOperation.READ, ResourceType.GROUP, self._call.request.group_id)
            and all(policy.allows(AclOperation.READ, ResourceType.TOPIC, name) for name in self._topics)
        )
