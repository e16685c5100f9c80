"""What the group coordinator needs besides its log; and the errors that clients get for errors of the log."""

from collections.abc import Callable, Mapping

from coordinator.group.config import ConsumerTimes
from coordinator.topics import TopicPartition
from protocol.kafka.errors import ErrorCode

GroupTopicPartition = tuple[str, TopicPartition]
"""(group id, partition): the key of a committed offset."""

OffsetsListener = Callable[[str, Mapping[TopicPartition, int | None]], None]
"""(group id, offsets that are durable now; None for a removed offset). For Pulsar's mirrored subscriptions."""

OwnTimes = Callable[[str], ConsumerTimes | None]
"""What clients have configured for this group id, at this moment; None if nothing."""

NewId = Callable[[], str]
"""A unique id for a member; Kafka's are random UUIDs."""


# The errors that clients get when the log refuses. Other errors are returned unchanged.
_OF_EVERY_APPEND = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
GROUP_APPEND_ERRORS = _OF_EVERY_APPEND | {
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
COMMIT_APPEND_ERRORS = _OF_EVERY_APPEND | {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
CONSUMER_APPEND_ERRORS = _OF_EVERY_APPEND | {
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
