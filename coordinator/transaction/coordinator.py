"""The transaction coordinator of one partition of `__transaction_state`: all transactional ids that hash to it.

A pure state machine. Requests are dataclasses and come with the current time. Each request gets exactly one answer
through `reply`, either immediately or when the records that the answer depends on are in the log. `states` has the
tables of transitions. Contract for the caller, as for the group coordinator:

- make one call at a time; `reply` must not call back into the coordinator;
- first `replay` every record of the partition in order, then take all steps of `finish_loading`; until then the
  answers are COORDINATOR_LOAD_IN_PROGRESS, and after `resign` NOT_COORDINATOR;
- while it `has_work`, call `work` from time to time: each call does a slice of the work on all transactional ids;
- call `tick` when `next_deadline_ms` has come. It may be earlier than the next event that is due;
- between `pause` and `resume` call nothing else: another coordinator may answer the producers in the meantime.

If the log does not know whether it has a record, the coordinator resigns by itself: load the partition again.

Error codes are those of Apache Kafka 4.2.0. While a transition is in flight, 3.9.2 may answer a fenced producer with
another error. Where Kafka would give a producer the epoch that is reserved for the coordinator, 32767, or raise the
epoch beyond it, the producer is fenced or gets another producer id.
"""

from collections.abc import Callable, Iterable

from coordinator.log import Log
from coordinator.slices import Background, SliceCounter, Steps
from coordinator.state_machine import Phase
from coordinator.timers import Timers
from coordinator.topics import TopicPartition
from coordinator.transaction import administration
from coordinator.transaction.config import TransactionConfig
from coordinator.transaction.ending import end_step
from coordinator.transaction.marker_writing import SLOW_MS, MarkerWriters
from coordinator.transaction.messages import (
    AddPartitionsReply,
    AddPartitionsRequest,
    DescribedTransaction,
    EndTxnReply,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdReply,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    Producer,
    VerifyPartitionsResponse,
)
from coordinator.transaction.metadata import EPOCH_BUMP_VERSION, TransactionMetadata
from coordinator.transaction.open_transactions import OnComplete, OpenTransactions
from coordinator.transaction.ports import CoordinatorEpoch, Markers, NewProducerId, OnSlow, TransactionVersion
from coordinator.transaction.producers import may_continue, next_producer
from coordinator.transaction.records.transaction_log import MAX_ID_BYTES, decode_transaction
from coordinator.transaction.states import EXPIRABLE, PREPARED, TABLE, Event, TransactionState
from coordinator.transaction.timer_keys import TimerKey, TimerKind
from coordinator.transaction.transactional_id import TransactionalId
from coordinator.transaction.transitions import OnDone, Transitions
from protocol.kafka.batch import NO_PRODUCER_ID
from protocol.kafka.errors import ErrorCode

MAX_REMOVED_TOGETHER = 500
_EXPIRY_TIMER, _SLOW_TIMER = TimerKey(TimerKind.EXPIRY), TimerKey(TimerKind.SLOW)


class TransactionCoordinator:
    def __init__(
        self,
        config: TransactionConfig,
        log: Log,
        markers: Markers,
        new_producer_id: NewProducerId,
        coordinator_epoch: CoordinatorEpoch,
        version: TransactionVersion,
        on_complete: OnComplete = lambda state: None,
        on_slow: OnSlow = lambda slow: None,
    ) -> None:
        self._config = config
        self._new_producer_id = new_producer_id
        self._version = version
        self._phase = Phase.LOADING
        self._ids: dict[str, TransactionalId] = {}
        self.open_transactions = OpenTransactions(on_complete)
        self._timers: Timers[TimerKey] = Timers()
        self._background = Background()
        self._transitions = Transitions(log, version, self._serves, self._on_ended, self.resign)
        self._writers = MarkerWriters(markers, coordinator_epoch, self._timers, self._serves, self._complete, on_slow)

    # --- Lifecycle

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Apply one record of the partition, oldest first. Raises MalformedRecordError, and skips that record."""
        decoded = decode_transaction(key, value)
        if decoded is None:
            return
        name, metadata = decoded
        if metadata is None:
            self._ids.pop(name, None)
        else:
            self._ids[name] = TransactionalId(name, metadata)

    def finish_loading(self, now_ms: int) -> Steps:
        """All records are replayed. After the last step the coordinator serves requests, and decided transactions that
        may lack markers get them again."""
        prepared = []
        counter = SliceCounter()
        for entry in self._ids.values():
            if entry.metadata.state in PREPARED:
                prepared.append(entry)
            self._await_timeout(entry)
            self.open_transactions.loaded(entry)
            if counter.is_full(1):
                yield
        self._phase = Phase.ACTIVE
        self._timers.set(_EXPIRY_TIMER, now_ms + self._config.id_expiration_check_interval_ms)
        self._timers.set(_SLOW_TIMER, now_ms + SLOW_MS)
        self._background.start(self._write_markers(prepared, now_ms))

    def _write_markers(self, prepared: list[TransactionalId], now_ms: int) -> Steps:
        counter = SliceCounter()
        for entry in prepared:
            self._writers.start(entry, now_ms)
            if counter.is_full(1 + len(entry.partitions)):
                yield

    def resign(self, now_ms: int) -> None:
        """Another coordinator has the partition now. Appends that are in flight still end; their requests get
        NOT_COORDINATOR."""
        self._phase = Phase.RESIGNED
        self._timers.clear()
        self.open_transactions.clear()
        self._background.clear()
        ids, self._ids = self._ids, {}
        self._background.start(_discard(ids))

    @property
    def has_work(self) -> bool:
        return bool(self._background)

    def work(self) -> None:
        """Do a slice of the work on all transactional ids."""
        self._background.step()

    def pause(self, now_ms: int) -> None:
        """Nothing to do: requests wait only for the log, and markers continue, as partition leaders refuse those of an
        older coordinator."""

    def resume(self, now_ms: int) -> None:
        """Nothing to do: the timeouts of transactions continued in the pause, as they do when Kafka's coordinator
        moves."""

    def next_deadline_ms(self) -> int | None:
        return None if self._phase is Phase.LOADING else self._timers.next_deadline_ms()

    def tick(self, now_ms: int) -> None:
        if self._phase is Phase.LOADING:
            return
        for timer in self._timers.due(now_ms):
            if timer.kind is TimerKind.EXPIRY:
                self._background.start(self._expire(now_ms))
                self._timers.set(_EXPIRY_TIMER, now_ms + self._config.id_expiration_check_interval_ms)
            elif timer.kind is TimerKind.SLOW:
                self._background.start(self._writers.look_for_slow(self.open_transactions.prepared(), now_ms))
                self._timers.set(_SLOW_TIMER, now_ms + SLOW_MS)
            elif timer.kind is TimerKind.MARKERS:
                self._writers.on_timer(self._ids[timer.transactional_id], now_ms)
            else:
                self._on_timeout(self._ids[timer.transactional_id], now_ms)

    def _serves(self) -> bool:
        return self._phase is Phase.ACTIVE

    # --- Producers

    def init_producer_id(self, request: InitProducerIdRequest, now_ms: int, reply: InitProducerIdReply) -> None:
        error = self._name_error(request.transactional_id)
        if not error and not 0 < request.timeout_ms <= self._config.max_timeout_ms:
            error = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        error = error or self._phase.error
        if error:
            reply(InitProducerIdResponse(error))
            return
        entry = self._ids.get(request.transactional_id) or self._new_id(request, now_ms)
        if entry.is_busy:
            reply(InitProducerIdResponse(ErrorCode.CONCURRENT_TRANSACTIONS))
        elif request.expected is not None and not may_continue(entry.metadata, request.expected):
            reply(InitProducerIdResponse(ErrorCode.PRODUCER_FENCED))
        elif TABLE[entry.metadata.state][Event.INIT_PRODUCER_ID] is TransactionState.PREPARE_ABORT:
            # The producer retries when the transaction is aborted. It then gets a later epoch, which no other producer
            # has got.
            self._fence(
                entry,
                now_ms,
                lambda error, now_ms: reply(InitProducerIdResponse(error or ErrorCode.CONCURRENT_TRANSACTIONS)),
            )
        else:
            self._initialize(entry, request, now_ms, reply)

    def _new_id(self, request: InitProducerIdRequest, now_ms: int) -> TransactionalId:
        name = request.transactional_id
        metadata = TransactionMetadata(
            producer_id=self._new_producer_id(), timeout_ms=request.timeout_ms, last_update_ms=now_ms
        )
        entry = self._ids[name] = TransactionalId(name, metadata)
        return entry

    def _initialize(
        self, entry: TransactionalId, request: InitProducerIdRequest, now_ms: int, reply: InitProducerIdReply
    ) -> None:
        metadata = next_producer(entry.metadata, request, now_ms, self._new_producer_id)
        if isinstance(metadata, ErrorCode):
            reply(InitProducerIdResponse(metadata))
            return
        producer = Producer(metadata.producer_id, metadata.producer_epoch)

        def on_done(error: ErrorCode, now_ms: int) -> None:
            reply(InitProducerIdResponse(error) if error else InitProducerIdResponse(error, producer))

        self._transitions.append(entry, metadata, on_done)

    def _fence(self, entry: TransactionalId, now_ms: int, on_done: OnDone) -> None:
        """Abort the open transaction, with an epoch that fences its producer."""
        self._transitions.append(entry, entry.metadata.fenced(self._version(), now_ms), on_done)

    # --- Transactions

    def add_partitions(self, request: AddPartitionsRequest, now_ms: int, reply: AddPartitionsReply) -> None:
        """Also for AddOffsetsToTxn: then it is the partition of the group whose offsets the transaction commits."""
        error = self._status(request.transactional_id)
        entry = self._ids.get(request.transactional_id)
        if error or entry is None:
            reply(error or ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        elif entry.is_busy:
            reply(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif error := _producer_error(entry, request.producer):
            reply(error)
        elif entry.metadata.state is TransactionState.ONGOING and request.partitions <= entry.metadata.partitions:
            reply(ErrorCode.NONE)
        else:
            metadata = entry.metadata.with_partitions(request.partitions, request.client_version, now_ms)
            self._transitions.append(entry, metadata, lambda error, now_ms: reply(error))

    def notify_when_free(self, transactional_id: str, call: Callable[[], None]) -> None:
        """Call `call` once, when requests for the id no longer get CONCURRENT_TRANSACTIONS; never after `resign`.

        Like a reply, it must not call back into the coordinator.
        """
        entry = self._ids.get(transactional_id)
        if entry is not None and entry.is_busy:
            entry.waiting.append(call)
        else:
            call()

    def stop_notifying(self, transactional_id: str, call: Callable[[], None]) -> None:
        entry = self._ids.get(transactional_id)
        if entry is not None and call in entry.waiting:
            entry.waiting.remove(call)

    def verify_partitions(self, request: AddPartitionsRequest) -> VerifyPartitionsResponse:
        """Return whether the partitions were added to the open transaction (KIP-890)."""
        error = self._status(request.transactional_id)
        entry = self._ids.get(request.transactional_id)
        if error or entry is None:
            return dict.fromkeys(request.partitions, error or ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        error = _producer_error(entry, request.producer)
        if not error and entry.metadata.state in PREPARED:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error:
            return dict.fromkeys(request.partitions, error)
        added: Iterable[TopicPartition] = entry.metadata.partitions
        return {
            partition: ErrorCode.NONE if partition in added else ErrorCode.TRANSACTION_ABORTABLE
            for partition in request.partitions
        }

    def end_transaction(self, request: EndTxnRequest, now_ms: int, reply: EndTxnReply) -> None:
        """After the answer NONE the outcome is certain; the markers are written after it."""
        error = self._status(request.transactional_id)
        entry = self._ids.get(request.transactional_id)
        if error or entry is None:
            reply(EndTxnResponse(error or ErrorCode.INVALID_PRODUCER_ID_MAPPING))
            return
        step = end_step(entry, request)
        if isinstance(step, ErrorCode):
            reply(EndTxnResponse(step) if step else EndTxnResponse(step, entry.producer))
            return
        bumps = request.client_version >= EPOCH_BUMP_VERSION
        next_id = self._new_producer_id() if bumps and entry.metadata.is_exhausted else NO_PRODUCER_ID
        metadata = entry.metadata.prepared(step, EPOCH_BUMP_VERSION if bumps else 0, now_ms, next_id)

        def on_done(error: ErrorCode, now_ms: int) -> None:
            reply(EndTxnResponse(error) if error else EndTxnResponse(error, Producer(*metadata.as_client_sees)))

        self._transitions.append(entry, metadata, on_done)

    def _on_ended(self, entry: TransactionalId, error: ErrorCode, now_ms: int) -> None:
        """A transition is in the log, or the log refused it."""
        self._await_timeout(entry, now_ms + self._config.abort_retry_ms if error else 0)
        self.open_transactions.changed(entry)
        entry.notify_if_free()
        if entry.metadata.state in PREPARED and entry.writing is None:
            self._writers.start(entry, now_ms)

    def _complete(self, entry: TransactionalId, now_ms: int) -> None:
        def on_done(error: ErrorCode, now_ms: int) -> None:
            if not error:
                entry.writing = None
            elif self._serves():
                self._writers.retry_later(entry, now_ms)

        self._transitions.append(entry, entry.metadata.completed(now_ms), on_done)

    # --- Time

    def _await_timeout(self, entry: TransactionalId, not_before_ms: int = 0) -> None:
        timer = TimerKey(TimerKind.TIMEOUT, entry.name)
        if entry.metadata.state is TransactionState.ONGOING:
            self._timers.set(timer, max(entry.metadata.deadline_ms, not_before_ms))
        else:
            self._timers.cancel(timer)

    def _on_timeout(self, entry: TransactionalId, now_ms: int) -> None:
        """If another record of the id is not durable yet, the timer is set again when that record is."""
        if not entry.is_in_transition:
            self._fence(entry, now_ms, lambda error, now_ms: None)

    def _expire(self, now_ms: int) -> Steps:
        """Remove the transactional ids that have not been used for `id_expiration_ms`."""
        expired: list[TransactionalId] = []
        counter = SliceCounter()
        for name in [*self._ids]:
            entry = self._ids.get(name)
            if entry is not None and self._is_expired(entry, now_ms):
                expired.append(entry)
            if len(expired) == MAX_REMOVED_TOGETHER:
                self._remove(expired, now_ms)
                expired = []
            if counter.is_full(1):
                yield
        self._remove(expired, now_ms)

    def _is_expired(self, entry: TransactionalId, now_ms: int) -> bool:
        unused_ms = now_ms - entry.metadata.last_update_ms
        is_free = not entry.is_in_transition and entry.metadata.state in EXPIRABLE
        return is_free and unused_ms >= self._config.id_expiration_ms

    def _remove(self, found: list[TransactionalId], now_ms: int) -> None:
        entries = [entry for entry in found if self._is_expired(entry, now_ms)]  # others were used since
        if not entries:
            return

        def on_removed() -> None:
            for entry in entries:
                del self._ids[entry.name]

        self._transitions.remove(entries, on_removed)

    # --- Administration

    def describe(self, transactional_id: str) -> DescribedTransaction:
        error = self._status(transactional_id)
        entry = self._ids.get(transactional_id)
        if error or entry is None:
            return DescribedTransaction(error or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
        return administration.describe(entry)

    def transactional_ids(self) -> list[str]:
        return [*self._ids]

    def list_transactions(
        self, request: ListTransactionsRequest, now_ms: int, among: Iterable[str] | None = None
    ) -> ListTransactionsResponse:
        """`among`: only those of these ids."""
        error = self._phase.error
        if error:
            return ListTransactionsResponse(error)
        names = self._ids if among is None else among
        entries = (entry for name in names if (entry := self._ids.get(name)) is not None)
        return administration.list_transactions(entries, request, now_ms)

    # --- Errors

    def _status(self, transactional_id: str) -> ErrorCode:
        return self._name_error(transactional_id) or self._phase.error

    def _name_error(self, transactional_id: str) -> ErrorCode:
        """Refuses an id that does not fit into the log's records. Kafka accepts such an id, and fails later."""
        fits = 0 < len(transactional_id.encode()) <= MAX_ID_BYTES
        return ErrorCode.NONE if fits else ErrorCode.INVALID_REQUEST


def _producer_error(entry: TransactionalId, producer: Producer) -> ErrorCode:
    if producer.id != entry.metadata.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.PRODUCER_FENCED if entry.metadata.fences(producer.epoch) else ErrorCode.NONE


def _discard(ids: dict[str, TransactionalId]) -> Steps:
    """Discards the ids in slices, because to free very many objects at once takes long."""
    counter = SliceCounter()
    while ids:
        if counter.is_full(1 + len(ids.popitem()[1].metadata.partitions)):
            yield
