"""A transaction coordinator with a log and partition leaders in memory, which answer when the test says so."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from coordinator.topics import TopicPartition
from coordinator.transaction.config import TransactionConfig
from coordinator.transaction.coordinator import TransactionCoordinator
from coordinator.transaction.messages import (
    AddPartitionsRequest,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    Producer,
)
from coordinator.transaction.metadata import TransactionMetadata
from coordinator.transaction.ports import MarkerOutcome, OnMarker, SlowTransaction, TransactionMarkers
from coordinator.transaction.records.transaction_log import decode_transaction, encode_transaction
from coordinator.transaction.states import TransactionState
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.memory_log import MemoryLog

Response = TypeVar("Response")
TIMEOUT_MS = 60_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Answer(Generic[Response]):
    """Receives the response to one request."""

    def __init__(self) -> None:
        self.answers: list[Response] = []

    def __call__(self, response: Response) -> None:
        assert not self.answers, "answered twice"
        self.answers.append(response)

    @property
    def value(self) -> Response:
        assert self.answers, "not answered yet"
        return self.answers[0]


class TransactionLog(MemoryLog):
    def last(self, name: str = "t") -> TransactionMetadata | None:
        """The id's last record; None is a tombstone, or no record."""
        decoded = [entry for record in self.durable if (entry := decode_transaction(*record)) is not None]
        return next((metadata for each, metadata in reversed(decoded) if each == name), None)


class Marker(NamedTuple):
    """A marker that a leader was asked to write."""

    markers: TransactionMarkers
    partition: TopicPartition
    on_outcome: OnMarker


class MemoryMarkers:
    def __init__(self) -> None:
        self.waiting: list[Marker] = []

    def write(self, markers: TransactionMarkers, on_outcome: OnMarker) -> None:
        assert markers.partitions
        self.waiting += [Marker(markers, partition, on_outcome) for partition in sorted(markers.partitions)]


class Harness:
    """Calls with the harness's own clock. With `auto`, log and leaders answer immediately after the call."""

    def __init__(
        self, *, version: int = 2, auto: bool = True, load: bool = True, config: TransactionConfig | None = None
    ) -> None:
        self.now_ms = 1_000_000
        self.version = version
        self.auto = auto
        self.log = TransactionLog()
        self.markers = MemoryMarkers()
        self.written: list[TransactionMarkers] = []
        self.completed: list[TransactionState] = []
        self.slow: list[Sequence[SlowTransaction]] = []
        self.next_id = 100
        self.coordinator_epoch = 7
        self.coordinator = TransactionCoordinator(
            config or TransactionConfig(),
            self.log,
            self.markers,
            self._new_id,
            lambda: self.coordinator_epoch,
            lambda: self.version,
            self.completed.append,
            self.slow.append,
        )
        if load:
            self.load()

    def _new_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def load(self) -> None:
        for _ in self.coordinator.finish_loading(self.now_ms):
            pass
        self._after()

    def reloaded(self, *, auto: bool = True, config: TransactionConfig | None = None) -> "Harness":
        """The next coordinator, which has just loaded what is durable."""
        later = Harness(version=self.version, auto=auto, load=False, config=config)
        later.now_ms, later.next_id = self.now_ms, self.next_id
        later.coordinator_epoch = self.coordinator_epoch + 1
        later.log.durable = [*self.log.durable]
        for record in self.log.durable:
            later.coordinator.replay(*record)
        later.load()
        return later

    # What the world does

    def finish_append(self, error: ErrorCode = ErrorCode.NONE) -> None:
        self.log.finish_one(self.now_ms, error)

    def finish_marker(self, outcome: MarkerOutcome = MarkerOutcome.WRITTEN, at: int = 0) -> None:
        marker = self.markers.waiting.pop(at)
        if outcome is MarkerOutcome.WRITTEN:
            self.written.append(marker.markers)
        marker.on_outcome(marker.partition, outcome, self.now_ms)

    def finish_all(self) -> None:
        self._work()
        while self.log.waiting or self.markers.waiting:
            if self.log.waiting:
                self.finish_append()
            else:
                self.finish_marker()
            self._work()

    def _work(self) -> None:
        while self.coordinator.has_work:
            self.coordinator.work()

    def _after(self) -> None:
        if self.auto:
            self.finish_all()
        else:
            self._work()

    def advance(self, duration_ms: int) -> None:
        """Let time pass: a tick at each deadline."""
        end_ms = self.now_ms + duration_ms
        while (deadline_ms := self.coordinator.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.coordinator.tick(self.now_ms)
            self._after()
        self.now_ms = end_ms

    # What clients do

    def init(
        self, expected: Producer | None = None, name: str = "t", timeout_ms: int = TIMEOUT_MS
    ) -> Answer[InitProducerIdResponse]:
        request = InitProducerIdRequest(name, timeout_ms, expected)
        return self._ask(lambda answer: self.coordinator.init_producer_id(request, self.now_ms, answer))

    def add(
        self, producer: Producer, *partitions: TopicPartition, name: str = "t", client_version: int = 0
    ) -> Answer[ErrorCode]:
        request = AddPartitionsRequest(name, producer, frozenset(partitions or (T0,)), client_version)
        return self._ask(lambda answer: self.coordinator.add_partitions(request, self.now_ms, answer))

    def end(
        self, producer: Producer, committed: bool = True, name: str = "t", client_version: int = 0
    ) -> Answer[EndTxnResponse]:
        request = EndTxnRequest(name, producer, committed, client_version)
        return self._ask(lambda answer: self.coordinator.end_transaction(request, self.now_ms, answer))

    def _ask(self, call: Callable[[Answer[Any]], None]) -> Answer[Any]:
        answer = Answer[Any]()
        call(answer)
        self._after()
        return answer

    def producer(self, name: str = "t") -> Producer:
        """A new producer."""
        response = self.init(name=name).value
        assert response.error is ErrorCode.NONE
        return response.producer

    def state(self, name: str = "t") -> str:
        return self.coordinator.describe(name).state


def loaded(metadata: TransactionMetadata, names: Iterable[str] = ("t",), **options: Any) -> Harness:
    """A coordinator that has loaded the ids in this state."""
    harness = Harness(load=False, **options)
    for name in names:
        record = encode_transaction(name, metadata, 1)
        harness.log.durable.append(record)
        harness.coordinator.replay(*record)
    harness.load()
    return harness


def ongoing(*, auto: bool = True, version: int = 2) -> tuple[Harness, Producer]:
    """A coordinator whose producer has an open transaction with T0 and T1."""
    h = Harness(version=version)
    producer = h.producer()
    assert h.add(producer, T0, T1).value is ErrorCode.NONE
    h.auto = auto
    return h, producer
