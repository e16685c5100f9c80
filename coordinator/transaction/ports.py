"""What the coordinator needs from outside: a log to append to, writers of markers, fresh producer ids."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Protocol

from coordinator.topics import TopicPartition
from protocol.kafka.errors import ErrorCode

NewProducerId = Callable[[], int]
"""An id that nobody has had."""

CoordinatorEpoch = Callable[[], int]
"""Higher than that of any coordinator that had the partition before; known when its log has been replayed."""

TransactionVersion = Callable[[], int]
"""The fleet's `transaction.version` at this moment: 0, 1 (records of version 1) or 2 (KIP-890)."""


# Markers


@dataclass(frozen=True, slots=True)
class TransactionMarkers:
    """One marker for each of the partitions: the transaction ends there, committed or aborted.

    `transaction_version` is 2 if `producer_epoch` is higher than that of the transaction's batches (KIP-890).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    partitions: Set[TopicPartition]
    transaction_version: int


class MarkerOutcome(Enum):
    WRITTEN = auto()
    """The partition's log has the marker, durably, or needs none: nothing of the transaction is open there."""
    GONE = auto()
    """There is no such partition any more; a fresh look has told so."""
    FAILED = auto()
    """It is to be sent again. It may be written or not, but will not be later: from clients that keep their epoch, the
    partition could not tell it from the next transaction's."""
    FENCED = auto()
    """The partition has heard of a later epoch of the producer, or of a later coordinator."""


OnMarker = Callable[[TopicPartition, MarkerOutcome, int], None]
"""(partition, outcome, now_ms)."""


class SlowTransaction(NamedTuple):
    """Its markers are being written for long. `partitions` still lack theirs."""

    transactional_id: str
    producer_id: int
    seconds: int
    partitions: Set[TopicPartition]
    fenced: Set[TopicPartition]
    """Those of them whose leaders know a later epoch of the producer or the coordinator."""


OnSlow = Callable[[Sequence[SlowTransaction]], None]


class Markers(Protocol):
    """Leads the markers to the leaders of the partitions."""

    def write(self, markers: TransactionMarkers, on_outcome: OnMarker) -> None:
        """Call `on_outcome` exactly once for each partition, later (never inside this call), whatever happens."""


MARKER_OUTCOMES = {
    ErrorCode.NONE: MarkerOutcome.WRITTEN,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: MarkerOutcome.GONE,
    ErrorCode.UNSUPPORTED_VERSION: MarkerOutcome.GONE,
    ErrorCode.INVALID_PRODUCER_EPOCH: MarkerOutcome.FENCED,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: MarkerOutcome.FENCED,
}
"""What a leader's answer to WriteTxnMarkers means; any other error is FAILED, UNKNOWN_TOPIC_OR_PARTITION included."""


# The log

NOT_WRITTEN = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.NOT_ENOUGH_REPLICAS})
"""With these errors the log says that it does not have the records, and will not. Otherwise they may appear."""

APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The error code of the response when an append fails. Other codes stay as they are."""
