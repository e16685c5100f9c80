"""Producers and partition leaders around a coordinator, for the model: what they believe, and the guarantees."""

from coordinator.topics import TopicPartition
from coordinator.transaction.messages import EndTxnResponse, InitProducerIdResponse, Producer
from coordinator.transaction.metadata import LAST_CLIENT_EPOCH
from coordinator.transaction.ports import MARKER_OUTCOMES, MarkerOutcome, TransactionMarkers
from gateway.log.transactions.state import PartitionTransactions
from protocol.kafka.errors import ErrorCode
from protocol.kafka.transaction_marker import MarkerType, TransactionMarker
from tests.unit.coordinator.transaction.transaction_harness import Answer

TRY_AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}


class ClientTransaction:
    """One transaction as its client sees it. `result` is the outcome in the client's response."""

    def __init__(self) -> None:
        self.added: set[TopicPartition] = set()
        self.written: set[TopicPartition] = set()
        self.asked_commit = False
        self.result: bool | None = None
        self.refused = False
        self.decided: dict[TopicPartition, bool] = {}

    def decide(self, partition: TopicPartition, committed: bool) -> None:
        """The partition's log has its marker."""
        assert partition not in self.decided, "two results for one transaction"
        self.decided[partition] = committed
        self.check()

    def told(self, committed: bool) -> None:
        self.result = committed
        self.check()

    def check(self) -> None:
        results = set(self.decided.values())
        assert len(results) < 2, "torn"
        assert self.asked_commit or True not in results, "committed, though nobody asked for it"
        assert self.result is None or results <= {self.result}, "not what the client was told"
        assert not self.refused or True not in results, "committed, though it was refused"


class Leader:
    """The leader of one partition. It verifies every write with the coordinator, as in KIP-890."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.transactions = PartitionTransactions()
        self.epochs: dict[int, int] = {}
        self.undecided: dict[int, list[ClientTransaction]] = {}
        self.end = 0

    def write(self, producer: Producer, transaction: ClientTransaction) -> None:
        if producer.epoch < self.epochs.get(producer.id, -1):
            return
        self.epochs[producer.id] = producer.epoch
        self.transactions.data_appended(producer.id, producer.epoch, self.end)
        undecided = self.undecided.setdefault(producer.id, [])
        if transaction not in undecided:
            undecided.append(transaction)
        assert len(undecided) == 1, "two transactions of a producer are open"
        transaction.written.add(self.partition)
        self.end += 1

    def mark(self, markers: TransactionMarkers) -> MarkerOutcome:
        marker = TransactionMarker(
            MarkerType(markers.committed), markers.producer_id, markers.producer_epoch, markers.coordinator_epoch
        )
        error = self.transactions.marker_error(marker, markers.transaction_version)
        if not error:
            self.transactions.marker_appended(marker, self.end)
            self.end += 1
            self.epochs[marker.producer_id] = max(marker.producer_epoch, self.epochs.get(marker.producer_id, -1))
            for transaction in self.undecided.pop(marker.producer_id, ()):
                transaction.decide(self.partition, markers.committed)
        return MARKER_OUTCOMES[error]


class Client:
    """It waits for each response, and retries when the outcome is unknown."""

    def __init__(self, name: str, client_version: int) -> None:
        self.name = name
        self.client_version = client_version
        self.producer: Producer | None = None
        self.goes_on = False
        """Its next InitProducerId has its id and epoch."""
        self.is_dead = False
        self.is_fenced = False
        self.may_be_unknown = False
        """The coordinator did not know its transactional id when it sent InitProducerId."""
        self.transaction = ClientTransaction()
        self.ending: bool | None = None
        self.adding: TopicPartition | None = None
        self.init: Answer[InitProducerIdResponse] | None = None
        self.add: Answer[ErrorCode] | None = None
        self.end: Answer[EndTxnResponse] | None = None

    @property
    def must_init(self) -> bool:
        return self.producer is None or self.goes_on

    def restart(self) -> None:
        """A new process, which ignores the old one's responses."""
        self.__init__(self.name, self.client_version)  # type: ignore[misc]

    def waits(self) -> bool:
        return any(each is not None and not each.answers for each in (self.init, self.add, self.end))

    def believe(self) -> bool:
        """Whether it has become the producer of its transactional id."""
        initialized = False
        if self.init is not None and self.init.answers:
            initialized = self._believe_init(self.init.value)
            self.init = None
        if self.add is not None and self.add.answers:
            self._believe_add(self.add.value)
            self.add = None
        if self.end is not None and self.end.answers:
            self._believe_end(self.end.value)
            self.end = None
        return initialized

    def _believe_init(self, response: InitProducerIdResponse) -> bool:
        if response.error:
            self._fail(response.error)
            return False
        assert not (self.goes_on and self.is_fenced) or self.may_be_unknown, "a fenced producer goes on"
        self._take(response.producer)
        self.goes_on = self.is_fenced = False
        return True

    def _believe_add(self, error: ErrorCode) -> None:
        if error:
            self._fail(error)
            return
        assert not self.is_fenced, "a fenced producer adds"
        assert self.adding is not None
        self.transaction.added.add(self.adding)

    def _believe_end(self, response: EndTxnResponse) -> None:
        assert self.ending is not None
        if response.error is ErrorCode.INVALID_TXN_STATE and self.ending:
            self.transaction.refused = True
            self.transaction.check()
        if response.error:
            self._fail(response.error)
            return
        assert not self.is_fenced, "a fenced producer ends"
        self.transaction.told(self.ending)
        if self.client_version == 2:
            self._take(response.producer)
        self.transaction, self.ending = ClientTransaction(), None

    def _take(self, producer: Producer) -> None:
        assert 0 <= producer.epoch <= LAST_CLIENT_EPOCH
        had = self.producer
        assert had is None or had.id != producer.id or producer.epoch >= had.epoch, "the epoch went back"
        self.producer = producer

    def _fail(self, error: ErrorCode) -> None:
        self.is_dead = error not in TRY_AGAIN
