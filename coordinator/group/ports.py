"""What the coordinator needs from outside: a log to append to, fresh ids, someone to tell of moved offsets."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from coordinator.group.config import ConsumerTimes
from coordinator.group.records.codec import Record
from protocol.kafka.errors import ErrorCode

OnAppended = Callable[[ErrorCode, int], None]
"""(error, now_ms): NONE when the records are durable, else why they are not known to be."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class DeletedTopic(NamedTuple):
    """`topic_id` is empty if it is not known; `deleted_ms` is since the epoch."""

    name: str
    topic_id: bytes
    deleted_ms: int


GroupTopicPartition = tuple[str, TopicPartition]
"""(group id, partition): what an offset is committed for."""


class Log(Protocol):
    """The group's partition of `__consumer_offsets`."""

    def append(self, records: Sequence[Record], on_done: OnAppended) -> None:
        """Append in order. Call `on_done` exactly once, later (never inside this call) and in the order of appends.

        Calls made in one moment may share one entry of the log, and a large call may need several.
        """


OffsetsListener = Callable[[str, Mapping[TopicPartition, int | None]], None]
"""(group id, offsets that are now durable; None where an offset was removed). For Pulsar's mirrored subscriptions."""

OwnTimes = Callable[[str], ConsumerTimes | None]
"""What clients have configured for the group of this id, at this moment; None if they have not."""

NewId = Callable[[], str]
"""A unique id for a member; Kafka's are random UUIDs."""


# What a client is told when the log refuses. Anything else is passed on as it is.
GROUP_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
COMMIT_APPEND_ERRORS = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
CONSUMER_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
