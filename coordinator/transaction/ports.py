"""What the coordinator needs from other modules: a log to append to, a writer of markers, new producer ids."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Protocol

from coordinator.topics import TopicPartition
from protocol.kafka.errors import ErrorCode

NewProducerId = Callable[[], int]
"""Returns a producer id that no producer has had."""

CoordinatorEpoch = Callable[[], int]
"""Returns an epoch above that of every earlier coordinator of the partition; known when its log has been replayed."""

TransactionVersion = Callable[[], int]
"""Returns the current `transaction.version` of the fleet: 0, 1 (records of version 1) or 2 (KIP-890)."""


# Markers


@dataclass(frozen=True, slots=True)
class TransactionMarkers:
    """One marker for each of the partitions, to end the transaction there as committed or aborted.

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
    """The marker is durable in the partition's log; or it is not needed, as the transaction has nothing open there."""
    GONE = auto()
    """The partition does not exist any more, according to current metadata."""
    FAILED = auto()
    """The marker has to be sent again. This attempt may have written it, but will not write it later: if the client
    keeps its epoch from transaction to transaction, the partition could not tell it from the marker of the next
    transaction."""
    FENCED = auto()
    """The partition's leader knows a later epoch of the producer or of the coordinator."""


OnMarker = Callable[[TopicPartition, MarkerOutcome, int], None]
"""(partition, outcome, now_ms)."""


class SlowTransaction(NamedTuple):
    """A transaction whose markers take long. `partitions` still lack theirs."""

    transactional_id: str
    producer_id: int
    seconds: int
    partitions: Set[TopicPartition]
    fenced: Set[TopicPartition]
    """Those of `partitions` whose leaders know a later epoch of the producer or of the coordinator."""


OnSlow = Callable[[Sequence[SlowTransaction]], None]


class Markers(Protocol):
    """Sends the markers to the leaders of the partitions."""

    def write(self, markers: TransactionMarkers, on_outcome: OnMarker) -> None:
        """Call `on_outcome` exactly once for each partition, later (never inside this call), whatever happens."""


MARKER_OUTCOMES = {
    ErrorCode.NONE: MarkerOutcome.WRITTEN,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: MarkerOutcome.GONE,
    ErrorCode.UNSUPPORTED_VERSION: MarkerOutcome.GONE,
    ErrorCode.INVALID_PRODUCER_EPOCH: MarkerOutcome.FENCED,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: MarkerOutcome.FENCED,
}
"""The outcome for each error code in the response to WriteTxnMarkers. All others are FAILED, also
UNKNOWN_TOPIC_OR_PARTITION."""


# The log

NOT_WRITTEN = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.NOT_ENOUGH_REPLICAS})
"""After these errors the log does not have the records, and never will. After others they may still appear."""

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
