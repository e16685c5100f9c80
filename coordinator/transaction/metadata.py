"""The state of a transactional id in the log, and the transitions from one such state to the next.

Nothing here is changed in place: a transition creates a new value, which is valid when it is in the log.

Producers have epochs up to 32766. The epoch 32767 is reserved for the coordinator, so that it can always fence a
producer with the last epoch. After that, the producer gets a new producer id.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from coordinator.topics import TopicPartition
from coordinator.transaction.states import PREPARED, TABLE, Event, TransactionState
from protocol.kafka.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP

LAST_CLIENT_EPOCH = 2**15 - 2
COORDINATOR_EPOCH = LAST_CLIENT_EPOCH + 1
EPOCH_BUMP_VERSION = 2
"""From this `transaction.version` on, each end of a transaction raises the producer's epoch (KIP-890)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    """The state of one transactional id. `start_ms` is -1 before its first transaction; times are since the epoch.

    `previous_producer_id` and `last_epoch` are the producer's id and epoch before the last change, as long as the
    producer may repeat the request that changed them; the log does not contain `last_epoch`. `next_producer_id` is the
    id that the producer gets when the markers are written. `client_version` is the `transaction.version` of the client
    that ended the last transaction, or has the present one open.
    """

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: AbstractSet[TopicPartition] = field(default_factory=frozenset)
    last_update_ms: int
    start_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_PRODUCER_EPOCH
    client_version: int = 0

    @property
    def is_exhausted(self) -> bool:
        """The producer id has no further epoch."""
        return self.producer_epoch >= LAST_CLIENT_EPOCH

    def fences(self, epoch: int) -> bool:
        """Whether a client with this epoch is fenced. No client has the coordinator's own epoch."""
        return epoch != self.producer_epoch or epoch > LAST_CLIENT_EPOCH

    @property
    def deadline_ms(self) -> int:
        """The first moment at which an open transaction has timed out."""
        return self.start_ms + self.timeout_ms + 1

    # The producer gets its id and epoch (InitProducerId)

    def with_next_epoch(self, timeout_ms: int, now_ms: int, *, last_epoch: int) -> "TransactionMetadata":
        return self._initialized(
            timeout_ms,
            now_ms,
            producer_epoch=self.producer_epoch + 1,
            last_epoch=last_epoch,
            previous_producer_id=self.producer_id,
        )

    def with_producer_id(self, new_id: int, timeout_ms: int, now_ms: int, *, last_epoch: int) -> "TransactionMetadata":
        return self._initialized(
            timeout_ms,
            now_ms,
            producer_id=new_id,
            producer_epoch=0,
            last_epoch=last_epoch,
            previous_producer_id=self.producer_id,
        )

    def initialized_again(self, timeout_ms: int, now_ms: int) -> "TransactionMetadata":
        """The producer did not receive the epoch that it was given."""
        return self._initialized(timeout_ms, now_ms)

    def _initialized(self, timeout_ms: int, now_ms: int, **changes: int) -> "TransactionMetadata":
        return replace(
            self,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
            last_update_ms=now_ms,
            **changes,
        )

    # The transaction

    def with_partitions(
        self, added: AbstractSet[TopicPartition], client_version: int, now_ms: int
    ) -> "TransactionMetadata":
        return replace(
            self,
            state=TransactionState.ONGOING,
            partitions=self.partitions | added,
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def prepared(
        self, state: TransactionState, client_version: int, now_ms: int, next_producer_id: int = NO_PRODUCER_ID
    ) -> "TransactionMetadata":
        """The client ended the transaction. It may have ended one that had not begun."""
        bumps = client_version >= EPOCH_BUMP_VERSION
        return replace(
            self,
            state=state,
            producer_epoch=self._raised_epoch if bumps else self.producer_epoch,
            last_epoch=self.producer_epoch if bumps else self.last_epoch,
            next_producer_id=next_producer_id,
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def fenced(self, server_version: int, now_ms: int) -> "TransactionMetadata":
        """The coordinator aborts the transaction, and raises the epoch once, which fences the client (KAFKA-19367)."""
        if server_version >= EPOCH_BUMP_VERSION:
            return self.prepared(TransactionState.PREPARE_ABORT, server_version, now_ms)
        aborted = self.prepared(TransactionState.PREPARE_ABORT, 0, now_ms)
        return replace(aborted, producer_epoch=self._raised_epoch, last_epoch=NO_PRODUCER_EPOCH)

    @property
    def _raised_epoch(self) -> int:
        """Earlier versions let clients begin transactions in the coordinator's own epoch, the highest one."""
        return min(self.producer_epoch + 1, COORDINATOR_EPOCH)

    def completed(self, now_ms: int) -> "TransactionMetadata":
        """All markers are written. A producer that has used all epochs has its next producer id now."""
        state = TABLE[self.state][Event.MARKERS_WRITTEN]
        assert isinstance(state, TransactionState)
        rotates = self.next_producer_id != NO_PRODUCER_ID
        return replace(
            self,
            state=state,
            producer_id=self.next_producer_id if rotates else self.producer_id,
            previous_producer_id=self.producer_id,
            producer_epoch=0 if rotates else self.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
            last_update_ms=now_ms,
        )

    @property
    def as_client_sees(self) -> tuple[int, int]:
        """The id and epoch that the producer has after the end of the prepared transaction."""
        if self.state in PREPARED and self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch
