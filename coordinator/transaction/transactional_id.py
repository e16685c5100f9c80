"""A transactional id as its coordinator has it, and the one transition of it that may be on its way to the log."""

from collections.abc import Callable, Set
from dataclasses import dataclass, field

from coordinator.topics import TopicPartition
from coordinator.transaction.messages import Producer
from coordinator.transaction.metadata import TransactionMetadata
from coordinator.transaction.states import PREPARED


@dataclass(slots=True)
class MarkerWriting:
    """Which partitions of a prepared transaction still lack their markers, and which of these are to be tried again."""

    unmarked: set[TopicPartition]
    since_ms: int
    failed: set[TopicPartition] = field(default_factory=set)
    fenced: set[TopicPartition] = field(default_factory=set)
    """Those whose leaders know a later epoch."""
    failures: int = 0
    """Rounds of which some marker failed, and appends that the log refused."""


@dataclass(slots=True)
class TransactionalId:
    """`metadata` is what the log has. It has none of an id whose first producer is being made: epoch -1."""

    name: str
    metadata: TransactionMetadata
    is_in_transition: bool = False
    """A record of it is on its way to the log."""
    writing: MarkerWriting | None = None
    waiting: list[Callable[[], None]] = field(default_factory=list)
    """To be called when it is not busy any more."""

    @property
    def is_busy(self) -> bool:
        """Requests come too early."""
        return self.is_in_transition or self.metadata.state in PREPARED

    @property
    def producer(self) -> Producer:
        return Producer(self.metadata.producer_id, self.metadata.producer_epoch)

    @property
    def partitions(self) -> Set[TopicPartition]:
        """While markers are written, those that lack theirs."""
        return self.metadata.partitions if self.writing is None else self.writing.unmarked


OnTransition = Callable[[TransactionalId, int], None]
"""(id, now_ms)."""
