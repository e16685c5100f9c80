"""The markers of prepared transactions, until all partitions have theirs.

A leader that fails is asked again after a while, for ever: the transaction's fate is decided. One that has heard of a
later epoch, or of a later coordinator, is left alone; so is the transaction, until a coordinator loads it anew.
"""

from collections.abc import Callable, Set

from coordinator.timers import Timers
from coordinator.topics import TopicPartition
from coordinator.transaction.ports import CoordinatorEpoch, MarkerOutcome, Markers, TransactionMarkers
from coordinator.transaction.states import TransactionState
from coordinator.transaction.timer_keys import TimerKey, TimerKind
from coordinator.transaction.transactional_id import MarkerWriting, OnTransition, TransactionalId

RETRY_FIRST_MS = 100
RETRY_LONGEST_MS = 5_000


class MarkerWriters:
    def __init__(
        self,
        markers: Markers,
        coordinator_epoch: CoordinatorEpoch,
        timers: Timers[TimerKey],
        serves: Callable[[], bool],
        on_all_written: OnTransition,
    ) -> None:
        """`on_all_written` is called again after a `retry_later`."""
        self._markers = markers
        self._coordinator_epoch = coordinator_epoch
        self._timers = timers
        self._serves = serves
        self._on_all_written = on_all_written

    def start(self, entry: TransactionalId, now_ms: int) -> None:
        entry.writing = MarkerWriting(set(entry.metadata.partitions))
        self._go_on(entry, entry.writing, entry.metadata.partitions, now_ms)

    def on_timer(self, entry: TransactionalId, now_ms: int) -> None:
        if entry.writing is not None:
            failed = frozenset(entry.writing.failed)
            entry.writing.failed.clear()
            self._go_on(entry, entry.writing, failed, now_ms)

    def retry_later(self, entry: TransactionalId, now_ms: int) -> None:
        if entry.writing is not None:
            delay_ms = min(RETRY_FIRST_MS << min(entry.writing.failures, 10), RETRY_LONGEST_MS)
            entry.writing.failures += 1
            self._timers.set(_retry_key(entry), now_ms + delay_ms)

    def _go_on(
        self, entry: TransactionalId, writing: MarkerWriting, partitions: Set[TopicPartition], now_ms: int
    ) -> None:
        if not writing.unmarked:
            self._on_all_written(entry, now_ms)
            return

        def on_outcome(partition: TopicPartition, outcome: MarkerOutcome, now_ms: int) -> None:
            if self._serves() and entry.writing is writing:
                self._on_outcome(entry, writing, partition, outcome, now_ms)

        metadata = entry.metadata
        committed = metadata.state is TransactionState.PREPARE_COMMIT
        epoch = self._coordinator_epoch()
        self._markers.write(
            TransactionMarkers(
                entry.name,
                metadata.producer_id,
                metadata.producer_epoch,
                epoch,
                committed,
                partitions,
                metadata.client_version,
            ),
            on_outcome,
        )

    def _on_outcome(
        self,
        entry: TransactionalId,
        writing: MarkerWriting,
        partition: TopicPartition,
        outcome: MarkerOutcome,
        now_ms: int,
    ) -> None:
        if outcome is MarkerOutcome.FAILED:
            writing.failed.add(partition)
            if _retry_key(entry) not in self._timers:
                self.retry_later(entry, now_ms)
        elif outcome is not MarkerOutcome.FENCED:
            writing.unmarked.discard(partition)
            if not writing.unmarked:
                self._on_all_written(entry, now_ms)


def _retry_key(entry: TransactionalId) -> TimerKey:
    return TimerKey(TimerKind.MARKERS, entry.name)
