"""AddPartitionsToTxn, EndTxn, timeouts, expiry."""

import pytest

from coordinator.slices import SLICE_UNITS
from coordinator.topics import TopicPartition
from coordinator.transaction.config import TransactionConfig
from coordinator.transaction.messages import AddPartitionsRequest, EndTxnResponse, Producer
from coordinator.transaction.metadata import TransactionMetadata
from coordinator.transaction.states import TransactionState
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.transaction.transaction_harness import T0, T1, TIMEOUT_MS, Harness, loaded, ongoing

NONE, WRONG = ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE
WAIT, FENCED = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED
UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING
DAY_MS = 24 * 60 * 60 * 1000


# Adding partitions


def test_partitions_are_added() -> None:
    h, producer = ongoing()
    assert h.add(producer, TopicPartition("u", 3)).value is NONE
    described = h.coordinator.describe("t")
    assert described.state == "Ongoing"
    assert described.partitions == {T0, T1, TopicPartition("u", 3)}
    assert (described.start_ms, described.timeout_ms, described.producer) == (1_000_000, TIMEOUT_MS, producer)


def test_what_is_added_already_needs_no_log() -> None:
    h, producer = ongoing(auto=False)
    assert h.add(producer, T1).value is NONE
    assert not h.log.waiting


def test_producers_that_may_add_partitions() -> None:
    h, producer = ongoing()
    assert h.add(producer, name="nobody").value is UNKNOWN
    assert h.add(Producer(7, 0)).value is UNKNOWN
    assert h.add(Producer(producer.id, producer.epoch + 1)).value is FENCED
    assert h.add(producer, name="").value is ErrorCode.INVALID_REQUEST


def test_one_transition_at_a_time() -> None:
    h, producer = ongoing(auto=False)
    first = h.add(producer, TopicPartition("u", 0))
    assert h.add(producer, TopicPartition("u", 1)).value is WAIT
    assert h.end(producer, client_version=2).value.error is WAIT
    h.finish_append()
    assert first.value is NONE


def test_a_thousand_partitions() -> None:
    h = Harness()
    producer = h.producer()
    partitions = [TopicPartition("t", number) for number in range(1_000)]
    assert h.add(producer, *partitions).value is NONE
    assert h.end(producer).value.error is NONE
    assert sum(len(each.partitions) for each in {id(m): m for m in h.written}.values()) == 1_000
    assert h.state() == "CompleteCommit"


def test_verification() -> None:
    h, producer = ongoing()

    def verify(who: Producer, name: str = "t") -> list[ErrorCode]:
        request = AddPartitionsRequest(name, who, frozenset({T0, TopicPartition("u", 0)}))
        return [error for _, error in sorted(h.coordinator.verify_partitions(request).items())]

    assert verify(producer) == [NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert verify(producer, "nobody") == [UNKNOWN] * 2
    assert verify(Producer(7, 0)) == [UNKNOWN] * 2
    assert verify(Producer(producer.id, 9)) == [FENCED] * 2
    h.auto = False
    h.end(producer)
    assert verify(producer) == [NONE, ErrorCode.TRANSACTION_ABORTABLE], "the leader looks again when it appends"
    h.finish_append()
    assert verify(producer) == [WAIT] * 2
    h.finish_all()
    assert verify(producer) == [ErrorCode.TRANSACTION_ABORTABLE] * 2


# Ending: clients that keep their epoch


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_ends(committed: bool) -> None:
    h, producer = ongoing(auto=False)
    answer = h.end(producer, committed)
    assert not answer.answers
    h.finish_append()
    assert answer.value == EndTxnResponse(NONE, producer)
    assert h.state() == ("PrepareCommit" if committed else "PrepareAbort")
    assert h.end(producer, committed).value.error is WAIT
    assert h.end(producer, not committed).value.error is WAIT
    assert h.add(producer).value is WAIT
    h.finish_marker()
    assert h.coordinator.describe("t").partitions == {T1}
    h.finish_all()
    assert h.state() == ("CompleteCommit" if committed else "CompleteAbort")
    assert {(m.committed, m.producer_epoch, m.transactional_id) for m in h.written} == {(committed, 0, "t")}
    assert h.end(producer, committed).value == EndTxnResponse(NONE, producer), "a retry"
    assert h.end(producer, not committed).value.error is WRONG
    assert h.end(Producer(producer.id, 1), committed).value.error is FENCED


def test_nothing_to_end() -> None:
    h = Harness()
    producer = h.producer()
    assert h.end(producer, committed=True).value.error is WRONG
    assert h.end(producer, committed=False).value.error is WRONG
    assert h.end(producer, name="nobody").value.error is UNKNOWN
    assert h.end(Producer(7, 0)).value.error is UNKNOWN


def test_one_transaction_after_the_other() -> None:
    h, producer = ongoing()
    h.end(producer)
    h.now_ms += 5
    assert h.add(producer, T1).value is NONE
    assert h.coordinator.describe("t").start_ms == h.now_ms
    assert h.end(producer, committed=False).value.error is NONE
    assert [m.committed for m in h.written] == [True, True, False]


# Ending: clients that get a new epoch (KIP-890)


@pytest.mark.parametrize("committed", [True, False])
def test_each_end_raises_the_epoch(committed: bool) -> None:
    h, old = ongoing(auto=False)
    answer = h.end(old, committed, client_version=2)
    h.finish_append()
    new = Producer(old.id, old.epoch + 1)
    assert answer.value == EndTxnResponse(NONE, new)
    assert h.add(new, client_version=2).value is WAIT
    assert h.end(new, committed, client_version=2).value.error is WAIT
    h.finish_all()
    assert {m.producer_epoch for m in h.written} == {new.epoch}
    assert h.end(old, committed, client_version=2).value == EndTxnResponse(NONE, new), "a retry"
    assert h.end(old, not committed, client_version=2).value.error is WRONG
    assert h.add(old).value is FENCED
    assert h.reloaded().end(old, committed, client_version=2).value == EndTxnResponse(NONE, new), "after a takeover"


def test_an_abort_without_partitions() -> None:
    h = Harness()
    producer = h.producer()
    for epoch in (1, 2):
        answer = h.end(producer, committed=False, client_version=2).value
        assert answer == EndTxnResponse(NONE, Producer(producer.id, epoch))
        assert h.state() == "CompleteAbort"
        producer = answer.producer
    assert h.end(producer, committed=True, client_version=2).value.error is WRONG
    assert not h.written


def test_a_commit_without_partitions() -> None:
    h = Harness()
    assert h.end(h.producer(), committed=True, client_version=2).value.error is WRONG


def test_epochs_that_do_not_fit() -> None:
    h, producer = ongoing()
    for epoch in (-1, 1, 5):
        assert h.end(Producer(producer.id, epoch), client_version=2).value.error is FENCED
    assert h.end(Producer(7, 0), client_version=2).value.error is UNKNOWN


def exhausted() -> Harness:
    metadata = TransactionMetadata(
        producer_id=5,
        producer_epoch=32_766,
        timeout_ms=TIMEOUT_MS,
        state=TransactionState.ONGOING,
        partitions=frozenset({T0}),
        last_update_ms=1_000_000,
        start_ms=1_000_000,
        client_version=2,
    )
    return loaded(metadata)


def test_an_exhausted_id_is_replaced() -> None:
    h = exhausted()
    old, new = Producer(5, 32_766), Producer(101, 0)
    assert h.end(old, client_version=2).value == EndTxnResponse(NONE, new)
    assert [(m.producer_id, m.producer_epoch) for m in h.written] == [(5, 32_767)]
    assert h.end(old, client_version=2).value == EndTxnResponse(NONE, new), "a retry"
    assert h.end(old, committed=False, client_version=2).value.error is WRONG
    assert h.reloaded().end(old, client_version=2).value == EndTxnResponse(NONE, new), "after a takeover"
    assert h.add(new, client_version=2).value is NONE
    assert h.end(new, client_version=2).value == EndTxnResponse(NONE, Producer(101, 1))
    assert h.end(old, client_version=2).value.error is UNKNOWN


def test_a_takeover_before_an_exhausted_ids_markers() -> None:
    h = exhausted()
    h.auto = False
    answer = h.end(Producer(5, 32_766), client_version=2)
    h.finish_append()
    assert answer.value.producer == (101, 0)
    later = h.reloaded()
    assert later.add(Producer(101, 0), client_version=2).value is NONE


# Time


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_times_out(version: int) -> None:
    h, producer = ongoing(version=version)
    h.advance(TIMEOUT_MS)
    assert h.state() == "Ongoing"
    h.advance(1)
    assert h.state() == "CompleteAbort"
    assert [(m.committed, m.producer_epoch) for m in h.written] == [(False, 1)] * 2
    assert h.end(producer).value.error is FENCED
    assert h.add(producer).value is FENCED


def test_a_timed_out_client_of_version_2_may_abort() -> None:
    h, producer = ongoing()
    h.advance(TIMEOUT_MS + 1)
    assert h.end(producer, committed=True, client_version=2).value.error is WRONG
    answer = h.end(producer, committed=False, client_version=2).value
    assert answer == EndTxnResponse(NONE, Producer(producer.id, 1))


def test_a_transaction_times_out_after_a_takeover() -> None:
    h, _ = ongoing()
    h.advance(TIMEOUT_MS // 2)
    later = h.reloaded()
    later.advance(TIMEOUT_MS // 2 + 1)
    assert later.state() == "CompleteAbort"


def test_a_refused_abort_is_tried_again_after_a_while() -> None:
    h, _ = ongoing(auto=False)
    h.advance(TIMEOUT_MS + 1)
    h.finish_append(ErrorCode.NOT_ENOUGH_REPLICAS)
    h.auto = True
    h.advance(9_999)
    assert h.state() == "Ongoing"
    h.advance(1)
    assert h.state() == "CompleteAbort"
    last = h.log.last()
    assert last is not None
    assert last.producer_epoch == 1


def test_a_timeout_during_a_commit() -> None:
    h, producer = ongoing(auto=False)
    answer = h.end(producer)
    h.advance(TIMEOUT_MS + 1)
    h.finish_all()
    assert answer.value.error is NONE
    assert h.state() == "CompleteCommit"


def test_a_timeout_during_an_add() -> None:
    h, producer = ongoing(auto=False)
    h.add(producer, TopicPartition("u", 0))
    h.advance(TIMEOUT_MS + 1)
    h.auto = True
    h.finish_all()
    h.advance(0)
    assert h.state() == "CompleteAbort"
    assert len(h.written) == 3


def test_unused_ids_expire() -> None:
    h, _ = ongoing()
    h.producer("unused")
    h.advance(7 * DAY_MS + 60 * 60 * 1000)
    assert h.coordinator.describe("unused").error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert h.log.last("unused") is None
    h.producer("unused")
    assert h.state("unused") == "Empty"


def test_very_many_ids_expire() -> None:
    h = Harness(config=TransactionConfig(id_expiration_ms=1_000, id_expiration_check_interval_ms=2_000))
    for number in range(1_200):
        h.producer(str(number))
    h.advance(2_000)
    assert all(h.log.last(str(number)) is None for number in range(0, 1_200, 100))
    assert h.coordinator.describe("1199").error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_an_id_that_is_used_again_during_the_search_does_not_expire() -> None:
    h = Harness(config=TransactionConfig(id_expiration_ms=1_000, id_expiration_check_interval_ms=2_000))
    h.producer()
    h.now_ms += 1_500
    for number in range(SLICE_UNITS):
        h.producer(str(number))
    h.now_ms += 500
    h.coordinator.tick(h.now_ms)
    h.coordinator.work()  # a slice of the search, which has found the id
    producer = h.producer()
    assert h.add(producer).value is NONE
    assert h.log.last() is not None


def test_a_refused_tombstone() -> None:
    h = Harness(config=TransactionConfig(id_expiration_ms=1_000, id_expiration_check_interval_ms=2_000))
    producer = h.producer()
    h.auto = False
    h.advance(2_000)
    assert h.add(producer).value is WAIT
    told: list[str] = []
    h.coordinator.notify_when_free("t", lambda: told.append("free"))
    h.finish_append(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert told == ["free"]
    h.auto = True
    assert h.add(producer).value is NONE


def test_waiting_requests_are_notified_when_the_id_is_removed() -> None:
    h = Harness(config=TransactionConfig(id_expiration_ms=1_000, id_expiration_check_interval_ms=2_000))
    producer = h.producer()
    h.auto = False
    h.advance(2_000)
    errors: list[ErrorCode] = []
    h.coordinator.notify_when_free("t", lambda: errors.append(h.coordinator.describe("t").error))
    assert not errors
    h.finish_append()
    assert errors == [ErrorCode.TRANSACTIONAL_ID_NOT_FOUND]
    assert h.add(producer).value is ErrorCode.INVALID_PRODUCER_ID_MAPPING
