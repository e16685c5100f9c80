"""Writes the markers of prepared transactions, until all partitions have theirs.

If a leader fails to write a marker, the coordinator retries after a delay, without end: the transaction's outcome is
decided. If a leader knows a later producer epoch or a later coordinator epoch, the coordinator retries only when it
searches for slow transactions: it may have been replaced by then. If it was not, the refusal was a mistake, which is
reported.
"""

from collections.abc import Callable, Iterable, Set

from coordinator.slices import SliceCounter, Steps
from coordinator.timers import Timers
from coordinator.topics import TopicPartition
from coordinator.transaction.ports import (
    CoordinatorEpoch,
    MarkerOutcome,
    Markers,
    OnSlow,
    SlowTransaction,
    TransactionMarkers,
)
from coordinator.transaction.states import PREPARED, TransactionState
from coordinator.transaction.timer_keys import TimerKey, TimerKind
from coordinator.transaction.transactional_id import MarkerWriting, OnTransition, TransactionalId

RETRY_FIRST_MS = 100
RETRY_LONGEST_MS = 5_000
SLOW_MS = 30_000
"""Transactions whose markers take longer are reported. This is also the interval of the search for them."""


class MarkerWriters:
    def __init__(
        self,
        markers: Markers,
        coordinator_epoch: CoordinatorEpoch,
        timers: Timers[TimerKey],
        serves: Callable[[], bool],
        on_all_written: OnTransition,
        on_slow: OnSlow,
    ) -> None:
        """`on_all_written` is called again after a `retry_later`."""
        self._markers = markers
        self._coordinator_epoch = coordinator_epoch
        self._timers = timers
        self._serves = serves
        self._on_all_written = on_all_written
        self._on_slow = on_slow

    def start(self, entry: TransactionalId, now_ms: int) -> None:
        entry.writing = MarkerWriting(set(entry.metadata.partitions), now_ms)
        self._continue(entry, entry.writing, entry.metadata.partitions, now_ms)

    def on_timer(self, entry: TransactionalId, now_ms: int) -> None:
        if entry.writing is not None:
            failed = frozenset(entry.writing.failed)
            entry.writing.failed.clear()
            self._continue(entry, entry.writing, failed, now_ms)

    def retry_later(self, entry: TransactionalId, now_ms: int) -> None:
        if entry.writing is not None:
            delay_ms = min(RETRY_FIRST_MS << min(entry.writing.failures, 10), RETRY_LONGEST_MS)
            entry.writing.failures += 1
            self._timers.set(_retry_key(entry), now_ms + delay_ms)

    def _continue(
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
        elif outcome is MarkerOutcome.FENCED:
            writing.fenced.add(partition)
        else:
            writing.unmarked.discard(partition)
            if not writing.unmarked:
                self._on_all_written(entry, now_ms)

    def look_for_slow(self, entries: Iterable[TransactionalId], now_ms: int) -> Steps:
        """Report the slow transactions, and send the markers again that leaders refused as fenced."""
        slow = []
        counter = SliceCounter()
        for entry in entries:
            if entry.metadata.state in PREPARED and not entry.is_in_transition:
                if entry.writing is None:
                    self.start(entry, now_ms)
                elif now_ms - entry.writing.since_ms >= SLOW_MS:
                    slow.append(_slow(entry, entry.writing, now_ms))
                    self._ask_fenced(entry, entry.writing, now_ms)
            if counter.is_full(1):
                yield
        if slow:
            self._on_slow(slow)

    def _ask_fenced(self, entry: TransactionalId, writing: MarkerWriting, now_ms: int) -> None:
        writing.failed |= writing.fenced
        if writing.fenced and _retry_key(entry) not in self._timers:
            self.retry_later(entry, now_ms)
        writing.fenced.clear()


def _slow(entry: TransactionalId, writing: MarkerWriting, now_ms: int) -> SlowTransaction:
    seconds = (now_ms - writing.since_ms) // 1000
    unmarked, fenced = frozenset(writing.unmarked), frozenset(writing.fenced)
    return SlowTransaction(entry.name, entry.metadata.producer_id, seconds, unmarked, fenced)


def _retry_key(entry: TransactionalId) -> TimerKey:
    return TimerKey(TimerKind.MARKERS, entry.name)
