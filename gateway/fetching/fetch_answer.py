"""The Fetch response's fields, as light objects: a busy gateway makes thousands of them a second."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

from gateway.fetching.fetch_session import FetchedPartition
from protocol.kafka.buffers import RecordChunks
from protocol.kafka.errors import ErrorCode

NO_RECORDS = RecordChunks((), 0)


class PartitionAnswer:
    """One partition; error answers carry no offsets."""

    __slots__ = (
        "aborted_transactions", "current_leader", "diverging_epoch", "error_code", "fetched", "high_watermark",
        "last_stable_offset", "log_start_offset", "partition_index", "preferred_read_replica", "records", "snapshot_id",
    )  # fmt: skip

    def __init__(
        self, fetched: FetchedPartition, *, error_code: int = 0, high_watermark: int = -1, log_start_offset: int = -1,
        records: RecordChunks = NO_RECORDS,
    ) -> None:  # fmt: skip
        self.fetched = fetched
        self.partition_index = fetched.partition
        self.error_code = error_code
        self.high_watermark = self.last_stable_offset = high_watermark
        self.log_start_offset = log_start_offset
        self.records = records
        self.aborted_transactions: list[object] | None = None
        self.preferred_read_replica = -1
        self.diverging_epoch = self.snapshot_id = None
        self.current_leader: object = None


class TopicAnswer:
    __slots__ = ("partitions", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: uuid.UUID | None) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions: list[PartitionAnswer] = []


class FetchAnswer:
    __slots__ = ("error_code", "node_endpoints", "responses", "session_id", "throttle_time_ms")

    def __init__(
        self, *, error_code: ErrorCode = ErrorCode.NONE, session_id: int = 0,
        responses: list[TopicAnswer] | None = None, node_endpoints: Sequence[object] = (),
    ) -> None:  # fmt: skip
        self.error_code = error_code
        self.session_id = session_id
        self.responses = responses or []
        self.throttle_time_ms = 0
        self.node_endpoints = node_endpoints


def group_by_topic(rows: Iterable[PartitionAnswer], *, by_id: bool) -> list[TopicAnswer]:
    """Rows under their topics, in the order of the request."""
    topics: dict[str | uuid.UUID | None, TopicAnswer] = {}
    for row in rows:
        key = row.fetched.topic
        answer = topics.get(key)
        if answer is None:
            if by_id:
                answer = TopicAnswer("", key if isinstance(key, uuid.UUID) else None)
            else:
                answer = TopicAnswer(str(key), None)
            topics[key] = answer
        answer.partitions.append(row)
    return list(topics.values())
