"""Idempotent producers, compared with a plain model of Kafka's rules (ProducerAppendInfo, ProducerStateEntry of 3.9).
"""

import time
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from gateway.errors import KafkaError
from gateway.log.writing.producer_state import TRUST_S, ActiveProducer, AllProducers, ProducerState, SequencedBatch
from protocol.kafka.batch import BatchHeader, parse_header
from protocol.kafka.errors import ErrorCode
from tests.support.empty_batch import empty_batch

LAST_SEQUENCE = 2**31 - 1


def header(producer_id: int, epoch: int, sequence: int, count: int = 1) -> BatchHeader:
    plain = parse_header(empty_batch(0, count))
    return plain._replace(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


class Appended(NamedTuple):
    first: int
    last: int
    offset: int


@dataclass
class Model:
    """Kafka's state of one producer."""

    epoch: int = -1
    batches: list[Appended] = field(default_factory=list)

    def judge(self, epoch: int, first: int, last: int, in_flight: int) -> Appended | ErrorCode | None:
        """The duplicate batch, an error, or None: the batch is appended. No batch in flight is forgotten."""
        if epoch == self.epoch:
            for batch in self.batches[-max(5, in_flight) :]:
                if (batch.first, batch.last) == (first, last):
                    return batch
        if self.epoch == -1:
            return None
        if epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        expected = 0 if epoch > self.epoch else (self.batches[-1].last + 1) % 2**31
        return None if first == expected else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def append(self, epoch: int, batch: Appended) -> None:
        if epoch != self.epoch:
            self.epoch, self.batches = epoch, []
        self.batches.append(batch)


class ProducerStateMachine(RuleBasedStateMachine):
    """Batches are checked as if all batches in flight were appended already: in Kafka they are."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ProducerState(max_producers=100)
        self.models: dict[int, Model] = {}
        self.in_flight: list[tuple[SequencedBatch, Appended]] = []
        self.asked: list[tuple[list[tuple[int, Exception | None]], Appended]] = []
        self.next_offset = 0

    ids = st.integers(0, 1)

    @rule(producer_id=ids, count=st.integers(1, 3), new_epoch=st.booleans())
    def produce(self, producer_id: int, count: int, new_epoch: bool) -> None:
        """The next batch of a correct producer."""
        model = self.models.setdefault(producer_id, Model())
        first, epoch = 0, max(0, model.epoch + new_epoch)
        if model.batches and not new_epoch:
            first = (model.batches[-1].last + 1) % 2**31
        elif not model.batches:
            first = LAST_SEQUENCE - 3  # so that sequences wrap
        self.send(producer_id, epoch, first, count)

    @rule(producer_id=ids, epoch=st.integers(0, 3), back=st.integers(-2, 8), count=st.integers(1, 3))
    def send_anything(self, producer_id: int, epoch: int, back: int, count: int) -> None:
        batches = self.models.setdefault(producer_id, Model()).batches
        self.send(producer_id, epoch, max(0, batches[-1].last - back) if batches else back % 3, count)

    @precondition(lambda self: any(model.batches for model in self.models.values()))
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        producer_id = data.draw(st.sampled_from([key for key, model in self.models.items() if model.batches]))
        model = self.models[producer_id]
        batch = data.draw(st.sampled_from(model.batches[-7:]))
        self.send(producer_id, model.epoch, batch.first, (batch.last - batch.first) % 2**31 + 1)

    def send(self, producer_id: int, epoch: int, first: int, count: int) -> None:
        sent = header(producer_id, epoch, first, count)
        model = self.models[producer_id]
        in_flight = sum(batch in model.batches for _, batch in self.in_flight)
        expected = model.judge(epoch, first, sent.last_sequence, in_flight)
        if isinstance(expected, ErrorCode):
            with pytest.raises(KafkaError) as raised:
                self.state.find_duplicate(sent)
            assert raised.value.code == expected
            return
        duplicate = self.state.find_duplicate(sent)
        if expected is not None:
            assert duplicate is not None
            self.ask(duplicate, expected)
            return
        assert duplicate is None
        batch = Appended(first, sent.last_sequence, self.next_offset)
        self.next_offset += count
        model.append(epoch, batch)
        self.in_flight.append((self.state.begin(sent), batch))

    def ask(self, duplicate: SequencedBatch, expected: Appended) -> None:
        if duplicate.base_offset >= 0:
            assert duplicate.base_offset == expected.offset
            return
        answers: list[tuple[int, Exception | None]] = []
        duplicate.waiters.append(lambda offset, error: answers.append((offset, error)))
        self.asked.append((answers, expected))

    @precondition(lambda self: bool(self.in_flight))
    @rule()
    def complete(self) -> None:
        batch, appended = self.in_flight.pop(0)
        self.state.complete(batch, appended.offset)

    def teardown(self) -> None:
        while self.in_flight:
            self.complete()
        for answers, expected in self.asked:
            assert answers == [(expected.offset, None)]


ProducerStateMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestProducerState = ProducerStateMachine.TestCase


def _written(state: ProducerState, *sequences: int, producer_id: int = 1, epoch: int = 0) -> None:
    for sequence in sequences:
        state.complete(state.begin(header(producer_id, epoch, sequence)), sequence + 100)


def test_a_refused_batch_may_come_again() -> None:
    state = ProducerState(10)
    _written(state, 0, 1)
    refused = state.begin(header(1, 0, 2))
    answers: list[tuple[int, Exception | None]] = []
    refused.waiters.append(lambda offset, error: answers.append((offset, error)))
    failure = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    state.abort(refused, failure)
    assert answers == [(-1, failure)]
    assert state.find_duplicate(header(1, 0, 2)) is None


FAILURE = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _refuses(state: ProducerState, sequence: int) -> bool:
    try:
        state.find_duplicate(header(1, 0, sequence))
    except KafkaError as error:
        assert error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return True
    return False


def test_behind_a_refused_batch_its_sequence_is_next_though_nothing_was_ever_written() -> None:
    """Otherwise batches in flight after it look like those of an unknown producer, which may start with any sequence.
    """
    state = ProducerState(10)
    in_flight = [state.begin(header(1, 0, sequence)) for sequence in range(3)]
    for batch in reversed(in_flight):
        state.abort(batch, FAILURE)
    assert [_refuses(state, sequence) for sequence in range(4)] == [False, True, True, True]


def test_what_is_in_flight_behind_a_refused_batch_stays_the_last() -> None:
    state = ProducerState(10)
    refused, follower = state.begin(header(1, 0, 0)), state.begin(header(1, 0, 1))
    state.abort(refused, FAILURE)
    state.complete(follower, 100)
    assert [_refuses(state, sequence) for sequence in (0, 2)] == [True, False]
    assert state.find_duplicate(header(1, 0, 1)) is follower


def test_no_batch_in_flight_is_forgotten() -> None:
    state = ProducerState(10)
    in_flight = [state.begin(header(1, 0, sequence)) for sequence in range(7)]
    assert state.find_duplicate(header(1, 0, 0)) is in_flight[0]
    for number, batch in enumerate(in_flight):
        state.complete(batch, number)
    assert [_refuses(state, sequence) for sequence in range(7)] == [True, True, *[False] * 5]


def test_no_producer_with_a_batch_in_flight_is_forgotten() -> None:
    state = ProducerState(2)
    state.begin(header(1, 0, 0))
    for producer_id in (2, 3, 4):
        _written(state, 0, producer_id=producer_id)
    assert [producer_id in state for producer_id in (1, 2, 3, 4)] == [True, False, False, True]


def test_a_producer_is_trusted_over_its_connection_and_for_a_while() -> None:
    state = ProducerState(10)
    batch = header(1, 0, 0)
    state.accepted(batch, 7, 100.0)
    assert not state.trusts(batch, 7, 100.0), "nothing is known of it"
    _written(state, 0)
    state.accepted(batch, 7, 100.0)
    assert [state.trusts(batch, source, 101.0) for source in (7, 8)] == [True, False]
    assert not state.trusts(batch, 7, 100.0 + TRUST_S)
    assert state.came_from(batch, 7)
    state.replay(header(1, 0, 1), 101)
    assert not state.came_from(batch, 7), "another gateway has written for it"


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert ProducerState(10).find_duplicate(header(1, 3, 77)) is None


def test_the_least_recently_used_producer_is_forgotten() -> None:
    state = ProducerState(2)
    for producer_id in (1, 2):
        _written(state, 0, producer_id=producer_id)
    _written(state, 1, producer_id=1)
    _written(state, 0, producer_id=3)
    assert [producer_id in state for producer_id in (1, 2, 3)] == [True, False, True]


# The producers of all partitions together


def test_of_all_partitions_the_least_recently_used_producer_is_forgotten() -> None:
    everywhere = AllProducers(3, expiration_s=60)
    states = [ProducerState(10, everywhere) for _ in range(2)]
    _written(states[0], 0, producer_id=1)
    _written(states[1], 0, producer_id=1)
    _written(states[1], 0, producer_id=2)
    _written(states[0], 1, producer_id=1)
    _written(states[1], 0, producer_id=3)
    assert len(everywhere) == 3
    assert 1 in states[0]
    assert [producer_id in states[1] for producer_id in (1, 2, 3)] == [False, True, True]


def test_a_producer_that_wrote_nothing_for_long_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    everywhere = AllProducers(10, expiration_s=60)
    state = ProducerState(10, everywhere)
    _written(state, 0, producer_id=1)
    now[0] += 50
    _written(state, 0, producer_id=2)
    everywhere.expire()
    assert 1 in state
    now[0] += 11
    everywhere.expire()
    assert [producer_id in state for producer_id in (1, 2)] == [False, True]
    assert len(everywhere) == 1


def test_a_batch_in_flight_keeps_its_producer() -> None:
    everywhere = AllProducers(1, expiration_s=-1)
    state = ProducerState(10, everywhere)
    batch = state.begin(header(1, 0, 0))
    _written(state, 0, producer_id=2)
    everywhere.expire()
    assert [producer_id in state for producer_id in (1, 2)] == [True, False]
    state.complete(batch, 0)
    everywhere.expire()
    assert 1 not in state


def test_very_many_producers_in_transactions_are_not_checked_for_each_batch() -> None:
    """That took 20 ms a batch with 50,000 of them."""
    state = ProducerState(100, AllProducers(200, expiration_s=60))
    checked = 0

    def has_transaction(producer_id: int) -> bool:
        nonlocal checked
        checked += 1
        return producer_id < 1_000

    state.has_transaction = has_transaction
    for producer_id in range(1_000):
        _written(state, 0, producer_id=producer_id)
    assert all(producer_id in state for producer_id in range(1_000))
    assert checked < 20_000
    state.has_transaction = lambda _: False
    for producer_id in range(1_000, 1_500):
        _written(state, 0, producer_id=producer_id)
    assert [each for each in range(1_500) if each in state] == [*range(1_400, 1_500)]


def test_a_producer_is_read_although_all_others_are_in_transactions() -> None:
    """It was forgotten while it was read, and its log could not be written to."""
    state = ProducerState(10, AllProducers(1, expiration_s=60))
    state.has_transaction = lambda producer_id: producer_id == 1
    for producer_id in (1, 2, 3):
        state.replay(header(producer_id, 0, 0), producer_id)
    assert [producer_id in state for producer_id in (1, 2, 3)] == [True, False, True]


def test_a_closed_log_gives_its_producers_back() -> None:
    everywhere = AllProducers(10, expiration_s=60)
    state = ProducerState(2, everywhere)
    for producer_id in range(5):
        _written(state, 0, producer_id=producer_id)
    assert len(everywhere) == 2
    state.close()
    assert len(everywhere) == 0
    _written(state, 0, producer_id=9)
    assert len(everywhere) == 0


class TestReplay:
    """The window as it is read from the log."""

    def test_knows_duplicates_with_their_offsets(self) -> None:
        state = ProducerState(10)
        for sequence in range(8):
            state.replay(header(1, 0, sequence), 100 + sequence)
        duplicate = state.find_duplicate(header(1, 0, 7))
        assert duplicate is not None
        assert duplicate.base_offset == 107
        assert state.find_duplicate(header(1, 0, 8)) is None
        with pytest.raises(KafkaError):
            state.find_duplicate(header(1, 0, 2))

    def test_of_an_older_epoch_is_ignored(self) -> None:
        state = ProducerState(10)
        _written(state, 0, epoch=4)
        state.replay(header(1, 3, 9), 50)
        assert state.find_duplicate(header(1, 4, 1)) is None

    def test_of_what_lies_before_a_batch_in_flight_changes_nothing(self) -> None:
        """The receipt of the earlier batch has arrived already, and it is read among the entries of others."""
        state = ProducerState(10)
        _written(state, 0)
        in_flight = state.begin(header(1, 0, 1))
        state.replay(header(1, 0, 0), 100)
        assert state.find_duplicate(header(1, 0, 1)) is in_flight
        assert state.find_duplicate(header(1, 0, 2)) is None

    def test_of_what_is_known_changes_nothing(self) -> None:
        """Two requests may start reading the log's end at the same time; the producer continues in the meantime."""
        state = ProducerState(10)
        for sequence in range(7):
            state.replay(header(1, 0, sequence), 100 + sequence)
        in_flight = state.begin(header(1, 0, 7))
        for sequence in range(7):
            state.replay(header(1, 0, sequence), 100 + sequence)
            assert state.find_duplicate(header(1, 0, 8)) is None
        assert state.find_duplicate(header(1, 0, 7)) is in_flight
        oldest = state.find_duplicate(header(1, 0, 3))
        assert oldest is not None
        assert oldest.base_offset == 103

    def test_of_a_batch_in_flight_changes_nothing(self) -> None:
        state = ProducerState(10)
        first, second = state.begin(header(1, 0, 0)), state.begin(header(1, 0, 1))
        state.replay(header(1, 0, 0), 100)
        assert state.find_duplicate(header(1, 0, 0)) is first
        assert state.find_duplicate(header(1, 0, 1)) is second
        assert state.find_duplicate(header(1, 0, 2)) is None


def test_active_producers_are_listed_with_their_last_written_batch() -> None:
    state = ProducerState(10)
    state.replay(header(1, 0, 0, 5)._replace(max_timestamp=70), 100)
    state.begin(header(1, 0, 5)._replace(max_timestamp=80))  # in flight
    state.begin(header(2, 0, 0))
    assert state.active() == [ActiveProducer(producer_id=1, epoch=0, last_sequence=4, last_timestamp=70)]
