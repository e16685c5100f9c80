"""The Fetch response, in classes that are fast to create: a busy gateway creates thousands of them per second."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from gateway.fetching.fetch_session import FetchedPartition
from protocol.kafka.buffers import RecordChunks
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import FetchResponse

NO_RECORDS = RecordChunks((), 0)
_NOTHING = object()


_TopicResponse = FetchResponse.FetchableTopicResponse


class PartitionAnswer(_TopicResponse.PartitionData):
    """One partition; answers with an error have no offsets."""

    __slots__ = ("fetched",)
    records: RecordChunks

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
        self.aborted_transactions = None
        self.preferred_read_replica = -1
        self.diverging_epoch = None
        self.current_leader = None
        self.snapshot_id = None


class TopicAnswer(_TopicResponse):
    __slots__ = ()
    partitions: list[PartitionAnswer]  # type: ignore[assignment]  # no other rows

    def __init__(self, topic: str, topic_id: uuid.UUID | None) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions = []


class FetchAnswer(FetchResponse):
    __slots__ = ()
    responses: list[TopicAnswer]  # type: ignore[assignment]  # no other rows

    def __init__(
        self, *, error_code: ErrorCode = ErrorCode.NONE, session_id: int = 0,
        responses: list[TopicAnswer] | None = None, node_endpoints: list[FetchResponse.NodeEndpoint] | None = None,
    ) -> None:  # fmt: skip
        self.error_code = error_code
        self.session_id = session_id
        self.responses = responses or []
        self.throttle_time_ms = 0
        self.node_endpoints = node_endpoints or []


def group_by_topic(rows: Iterable[PartitionAnswer], *, by_id: bool) -> list[TopicAnswer]:
    """Rows under their topics, in the order of the request."""
    topics: list[TopicAnswer] = []
    add_rows(topics, rows, by_id=by_id)
    return topics


def add_rows(topics: list[TopicAnswer], rows: Iterable[PartitionAnswer], *, by_id: bool) -> None:
    """Add rows to the topics of an answer, which are named by their ids or names in the request.

    As in Kafka, the order is kept: a topic is named again if others are in between. Clients use what comes first.
    """
    last = topics[-1].partitions[-1].fetched.topic if topics else _NOTHING
    for row in rows:
        key = row.fetched.topic
        if key != last:
            if by_id:
                topics.append(TopicAnswer("", key if isinstance(key, uuid.UUID) else None))
            else:
                topics.append(TopicAnswer(str(key), None))
            last = key
        topics[-1].partitions.append(row)
