"""A transactional id in its coordinator, with the one transition of it that may be in flight."""

from collections.abc import Callable, Set
from dataclasses import dataclass, field

from coordinator.topics import TopicPartition
from coordinator.transaction.messages import Producer
from coordinator.transaction.metadata import TransactionMetadata
from coordinator.transaction.states import PREPARED


@dataclass(slots=True)
class MarkerWriting:
    """The partitions of a prepared transaction that still lack their markers, and those of them that need a retry."""

    unmarked: set[TopicPartition]
    since_ms: int
    failed: set[TopicPartition] = field(default_factory=set)
    fenced: set[TopicPartition] = field(default_factory=set)
    """Partitions whose leaders know a later epoch of the producer or of the coordinator."""
    failures: int = 0
    """The number of retries: after failed markers, and after appends that the log refused."""


@dataclass(slots=True)
class TransactionalId:
    """`metadata` is the state in the log. The log has none while the first producer is being initialized: epoch -1."""

    name: str
    metadata: TransactionMetadata
    is_in_transition: bool = False
    """A record of the id is in flight."""
    writing: MarkerWriting | None = None
    waiting: list[Callable[[], None]] = field(default_factory=list)
    """To be called when the id is not busy any more."""

    @property
    def is_busy(self) -> bool:
        """Requests have to wait or to be retried."""
        return self.is_in_transition or self.metadata.state in PREPARED

    def notify_if_free(self) -> None:
        """Call what waits, if the id is not busy any more."""
        if not self.is_busy:
            waiting, self.waiting = self.waiting, []
            for call in waiting:
                call()

    @property
    def producer(self) -> Producer:
        return Producer(self.metadata.producer_id, self.metadata.producer_epoch)

    @property
    def partitions(self) -> Set[TopicPartition]:
        """While markers are written, the partitions that lack theirs."""
        return self.metadata.partitions if self.writing is None else self.writing.unmarked


OnTransition = Callable[[TransactionalId, int], None]
"""(id, now_ms)."""
