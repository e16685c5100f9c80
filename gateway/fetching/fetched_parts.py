"""What a fetch asks for, and what is known of each of its partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.fetching.fetch_session import FetchedPartition
from gateway.log.partition_log import PartitionLog
from protocol.kafka.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class FetchParams:
    """The parameters of a fetch for all its partitions: those of the request, and limits of the gateway."""

    max_wait_ms: int
    min_bytes: int
    room_bytes: Callable[[], int]
    """The maximum size of the records of all partitions, at the moment of the answer."""
    whole_first_batch: bool
    """The first batch is returned whole, however large it is (KIP-74)."""
    read_committed: bool
    beyond_end: Callable[[], ErrorCode]
    """The error for an offset beyond the log's end, after the broker was asked for the end."""


class FetchPartitionState:
    """One partition of the fetch."""

    __slots__ = (
        "asked", "diverges", "error", "fetched", "log", "name", "opening", "preferred_reader", "refreshing",
        "waits_below_end",
    )  # fmt: skip

    def __init__(self, fetched: FetchedPartition) -> None:
        self.fetched = fetched
        self.error = ErrorCode.NONE
        self.name: str | None = None
        """The topic's name, if it is known."""
        self.log: PartitionLog | None = None
        self.preferred_reader: int | None = None
        """The gateway of the consumer's rack, from which the consumer should fetch instead (KIP-392)."""
        self.asked = self.refreshing = False
        self.waits_below_end = False
        """Its log was told that the fetch waits for records that there are."""
        self.diverges = False
        """The reader has records of the log's epoch that the log does not have (KIP-595)."""
        self.opening = False
        """The log is being opened. If the fetch cannot wait for it, the row has an error after which clients retry."""

    @property
    def is_cold(self) -> bool:
        """Its log has to be opened."""
        return not self.error and self.log is None and self.preferred_reader is None


class Findings:
    """What a look at the partitions of a fetch has found."""

    __slots__ = ("failed", "is_urgent", "looked_up", "total_bytes")

    def __init__(self) -> None:
        self.total_bytes = self.failed = 0
        self.is_urgent = self.looked_up = False
