"""Random histories of producers, with a slow log, slow leaders, and coordinators that crash at every point.

The reference is the clients' view: each client knows its requests, its responses, and the logs of the partitions. The
guarantees are in `transaction_world`, and below as invariants.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coordinator.topics import TopicPartition
from coordinator.transaction.config import TransactionConfig
from coordinator.transaction.messages import AddPartitionsRequest
from coordinator.transaction.metadata import LAST_CLIENT_EPOCH, TransactionMetadata
from coordinator.transaction.ports import MarkerOutcome
from coordinator.transaction.records.transaction_log import decode_transaction, encode_transaction
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.transaction.transaction_harness import TIMEOUT_MS, Harness, Marker
from tests.unit.coordinator.transaction.transaction_world import Client, ClientTransaction, Leader

PARTITIONS = [TopicPartition("t", number) for number in range(2)]
CLIENTS = st.integers(0, 2)
REFUSALS = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE]
CONFIG = TransactionConfig(id_expiration_ms=5 * TIMEOUT_MS, id_expiration_check_interval_ms=TIMEOUT_MS)
START_ID = 50


class TransactionLife(RuleBasedStateMachine):
    @initialize(
        version=st.sampled_from([0, 1, 2, 2]),
        client_versions=st.tuples(*[st.sampled_from([0, 2])] * 3),
        epochs_left=st.sampled_from([0, 1, 3, 1_000]),
    )
    def start(self, version: int, client_versions: tuple[int, ...], epochs_left: int) -> None:
        """Two producers compete for a transactional id with few epochs left; a third one has another id."""
        self.h = Harness(version=version, auto=False, load=False, config=CONFIG)
        self.leaders = {partition: Leader(partition) for partition in PARTITIONS}
        self.clients = [
            Client("aba"[n], client_version if version == 2 else 0) for n, client_version in enumerate(client_versions)
        ]
        self.transactions: set[ClientTransaction] = set()
        self.late_markers: list[Marker] = []
        self.records_seen = 0
        self.last: dict[str, TransactionMetadata] = {}
        self.ids_seen: set[int] = set()
        epoch = LAST_CLIENT_EPOCH - epochs_left
        worn = TransactionMetadata(
            producer_id=START_ID, producer_epoch=epoch, timeout_ms=TIMEOUT_MS, last_update_ms=self.h.now_ms
        )
        self.h.log.durable.append(encode_transaction("a", worn, version=min(version, 1)))
        self.h.coordinator.replay(*self.h.log.durable[0])
        self.h.load()

    # --- What clients do

    @rule(n=CLIENTS, partition=st.sampled_from(PARTITIONS), goes_on=st.sampled_from([False, False, False, True]))
    def add(self, n: int, partition: TopicPartition, goes_on: bool) -> None:
        """The next step towards a written record; or an InitProducerId as after an error, without one."""
        client = self.clients[n]
        if client.waits() or client.is_dead:
            return
        client.goes_on |= goes_on and client.producer is not None and client.ending is None and not client.adding
        if client.must_init:
            self.init(client)
        elif client.ending is not None:
            self.send_end(client)
        elif partition in client.transaction.added:
            self.write(client, partition)
        else:
            assert client.producer is not None
            client.adding = partition
            client.add = self.h.add(client.producer, partition, name=client.name, client_version=client.client_version)

    @rule(n=CLIENTS, committed=st.booleans())
    def end(self, n: int, committed: bool) -> None:
        client = self.clients[n]
        if not client.waits() and not client.is_dead and not client.must_init:
            if client.ending is None:
                client.ending = committed
            self.send_end(client)

    @rule(n=CLIENTS, partition=st.sampled_from(PARTITIONS), committed=st.sampled_from([None, True, True, False]))
    def works(self, n: int, partition: TopicPartition, committed: bool | None) -> None:
        """Without faults up to a written record; then it may send an end."""
        client = self.clients[n]
        if client.is_dead:
            client.restart()
        self.reload_if_resigned()
        for _ in range(8):
            self.quieten()
            if partition in client.transaction.written:
                break
            self.add(n, partition, False)
        if committed is not None:
            self.end(n, committed)

    @rule(n=CLIENTS)
    def restart(self, n: int) -> None:
        self.clients[n].restart()

    def init(self, client: Client) -> None:
        described = self.h.coordinator.describe(client.name)
        client.may_be_unknown = described.error is not ErrorCode.NONE or described.producer.epoch < 0
        client.transaction, client.adding = ClientTransaction(), None
        client.init = self.h.init(client.producer if client.goes_on else None, client.name)

    def send_end(self, client: Client) -> None:
        assert client.producer is not None
        assert client.ending is not None
        client.adding = None
        client.transaction.asked_commit |= client.ending
        client.end = self.h.end(client.producer, client.ending, client.name, client.client_version)

    def write(self, client: Client, partition: TopicPartition) -> None:
        assert client.producer is not None
        request = AddPartitionsRequest(client.name, client.producer, frozenset({partition}))
        if self.h.coordinator.verify_partitions(request)[partition] is ErrorCode.NONE:
            assert not client.is_fenced, "a fenced producer writes"
            self.leaders[partition].write(client.producer, client.transaction)
            self.transactions.add(client.transaction)

    # --- What the world does

    @rule(error=st.sampled_from([ErrorCode.NONE] * 5 + REFUSALS))
    def log_answers(self, error: ErrorCode) -> None:
        if self.h.log.waiting and not self.resigned():
            self.h.finish_append(error)

    @rule(at=st.integers(0, 5), applied=st.booleans(), lost=st.booleans())
    def leader_answers(self, at: int, applied: bool, lost: bool) -> None:
        """With a lost response, the marker may be written or not."""
        if self.h.markers.waiting:
            marker = self.h.markers.waiting.pop(at % len(self.h.markers.waiting))
            outcome = MarkerOutcome.FAILED
            if applied or not lost:
                outcome = self.leaders[marker.partition].mark(marker.markers)
                assert outcome is MarkerOutcome.WRITTEN, "the coordinator in office is obeyed"
            marker.on_outcome(marker.partition, MarkerOutcome.FAILED if lost else outcome, self.h.now_ms)

    @rule(at=st.integers(0, 5))
    def marker_of_the_past_arrives(self, at: int) -> None:
        if self.late_markers:
            marker = self.late_markers.pop(at % len(self.late_markers))
            outcome = self.leaders[marker.partition].mark(marker.markers)
            marker.on_outcome(marker.partition, outcome, self.h.now_ms)

    @rule(duration_ms=st.sampled_from([1, 200, 5_000, TIMEOUT_MS // 2, TIMEOUT_MS + 1, 6 * TIMEOUT_MS]))
    def time_passes(self, duration_ms: int) -> None:
        self.h.advance(duration_ms)

    @rule(n=CLIENTS, partition=st.sampled_from(PARTITIONS))
    def transaction_times_out(self, n: int, partition: TopicPartition) -> None:
        """The client does not know it."""
        self.works(n, partition, None)
        self.h.advance(TIMEOUT_MS + 1)
        self.quieten()

    @rule(written=st.booleans())
    def log_is_lost(self, written: bool) -> None:
        """The log does not know whether it has the record, and accepts no more."""
        if self.h.log.waiting:
            records, on_done = self.h.log.waiting.pop(0)
            self.h.log.durable += records if written else ()
            on_done(ErrorCode.REQUEST_TIMED_OUT, self.h.now_ms)
            assert self.resigned()

    def resigned(self) -> bool:
        return self.h.coordinator.describe("a").error is ErrorCode.NOT_COORDINATOR

    def reload_if_resigned(self) -> None:
        if self.resigned():
            self.coordinator_crashes(0, False)

    @rule(written=st.integers(0, 4), resigns=st.booleans())
    def coordinator_crashes(self, written: int, resigns: bool) -> None:
        """Of the records in flight to the log, a first part is stored."""
        old = self.h
        old.log.durable += [record for records, _ in old.log.waiting[:written] for record in records]
        if resigns:
            old.coordinator.resign(old.now_ms)
        while old.log.waiting:
            old.log.waiting.pop(0)[1](ErrorCode.NOT_LEADER_OR_FOLLOWER, old.now_ms)
        self.late_markers += old.markers.waiting
        self.clients_believe()
        for client in self.clients:
            if client.waits():  # the connection is lost
                client.init = client.add = client.end = None
        self.h = old.reloaded(auto=False, config=CONFIG)

    # --- What must hold

    @invariant()
    def clients_believe(self) -> None:
        for client in self.clients:
            if client.believe():
                for other in self.clients:
                    if other is not client and other.name == client.name and other.producer is not None:
                        other.is_fenced = True

    @invariant()
    def epochs_never_go_back(self) -> None:
        for record in self.h.log.durable[self.records_seen :]:
            decoded = decode_transaction(*record)
            assert decoded is not None
            name, metadata = decoded
            before = self.last.pop(name, None)
            if metadata is None:
                continue
            if before is not None and before.producer_id == metadata.producer_id:
                assert metadata.producer_epoch >= before.producer_epoch
            else:
                assert metadata.producer_id not in self.ids_seen
            self.ids_seen.add(metadata.producer_id)
            self.last[name] = metadata
        self.records_seen = len(self.h.log.durable)

    @invariant()
    def what_is_shown_is_durable(self) -> None:
        for name, metadata in () if self.resigned() else self.last.items():
            described = self.h.coordinator.describe(name)
            assert (described.state, described.producer) == (
                metadata.state.value,
                (metadata.producer_id, metadata.producer_epoch),
            )

    def teardown(self) -> None:
        """After a long time without faults, every transaction has the same outcome everywhere, as its client was told.
        """
        if not hasattr(self, "h"):
            return
        self.reload_if_resigned()
        while self.late_markers:
            self.marker_of_the_past_arrives(0)
        for _ in range(20):
            self.quieten()
            self.h.advance(TIMEOUT_MS // 2)
        self.clients_believe()
        assert not any(client.waits() for client in self.clients)
        for name in "ab":
            described = self.h.coordinator.describe(name)
            assert described.state in ("", "Empty", "CompleteCommit", "CompleteAbort")
        for leader in self.leaders.values():
            assert not leader.transactions.open
            assert leader.transactions.last_stable_offset(leader.end) == leader.end
        for transaction in self.transactions:
            assert transaction.decided.keys() == transaction.written
            transaction.check()

    def quieten(self) -> None:
        self.clients_believe()
        while not self.resigned() and (self.h.log.waiting or self.h.markers.waiting):
            self.log_answers(ErrorCode.NONE)
            self.leader_answers(0, True, False)
            self.clients_believe()


TransactionLife.TestCase.settings = settings(max_examples=250, stateful_step_count=40, deadline=None)
TestTransactionLife: Any = TransactionLife.TestCase
