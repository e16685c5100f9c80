"""InitProducerId: ids and epochs, fencing, exhaustion (KIP-360)."""

from typing import Any

import pytest

from coordinator.transaction.messages import AddPartitionsRequest, InitProducerIdResponse, Producer
from coordinator.transaction.metadata import TransactionMetadata
from coordinator.transaction.states import TransactionState
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.transaction.transaction_harness import T0, Harness, loaded

FENCED = InitProducerIdResponse(ErrorCode.PRODUCER_FENCED)
WAIT = InitProducerIdResponse(ErrorCode.CONCURRENT_TRANSACTIONS)


def given(response: InitProducerIdResponse) -> Producer:
    assert response.error is ErrorCode.NONE
    return response.producer


def found(epoch: int, state: TransactionState = TransactionState.EMPTY, **changes: Any) -> Harness:
    fields: dict[str, Any] = {"producer_id": 5, "timeout_ms": 60_000, "last_update_ms": 999_000, "start_ms": 999_000}
    return loaded(TransactionMetadata(producer_epoch=epoch, state=state, **(fields | changes)))


def test_each_producer_has_a_later_epoch() -> None:
    h = Harness()
    assert given(h.init().value) == (101, 0)
    assert given(h.init().value) == (101, 1)
    assert given(h.init(name="other").value) == (102, 0)


@pytest.mark.parametrize("timeout_ms", [0, -1, 15 * 60 * 1000 + 1])
def test_timeouts_out_of_range(timeout_ms: int) -> None:
    assert Harness().init(timeout_ms=timeout_ms).value.error is ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("name", ["", "x" * 32_768])
def test_ids_without_a_record(name: str) -> None:
    assert Harness().init(name=name).value.error is ErrorCode.INVALID_REQUEST


def test_the_longest_id() -> None:
    assert given(Harness().init(name="x" * 32_767).value) == (101, 0)


def test_nothing_is_answered_before_the_log_has_it() -> None:
    h = Harness(auto=False)
    first, second = h.init(), h.init()
    assert second.value == WAIT
    assert not first.answers
    h.finish_append()
    assert given(first.value) == (101, 0)


# A producer that continues after an error sends its id and epoch


def test_a_producer_continues_in_its_next_epoch() -> None:
    h = Harness()
    had = h.producer()
    now = given(h.init(had).value)
    assert now == (101, 1)
    assert given(h.init(had).value) == now, "it did not hear of it"
    assert given(h.init(now).value) == (101, 2)
    assert h.init(had).value == FENCED


def test_a_producer_that_another_has_replaced() -> None:
    h = Harness()
    had = h.producer()
    h.producer()
    assert h.init(had).value == FENCED


def test_a_producer_with_an_id_of_its_own() -> None:
    h = Harness()
    h.producer()
    assert h.init(Producer(7, 0)).value == FENCED


def test_a_producer_with_an_expired_id() -> None:
    """Its transactional id has expired: it gets a new id."""
    assert given(Harness().init(Producer(7, 3)).value) == (101, 0)


def test_a_retry_across_a_takeover() -> None:
    """As in Kafka: the log does not have the last epoch."""
    h = Harness()
    had = h.producer()
    h.init(had)
    assert h.reloaded().init(had).value == FENCED


# Exhausted epochs


def test_the_last_epoch_is_followed_by_another_id() -> None:
    h = found(32_765)
    assert given(h.init().value) == (5, 32_766)
    assert given(h.init().value) == (101, 0)


def test_a_producer_continues_after_the_last_epoch() -> None:
    h = found(32_766)
    had = Producer(5, 32_766)
    now = given(h.init(had).value)
    assert now == (101, 0)
    assert given(h.init(had).value) == now, "it did not hear of it"
    assert given(h.init(now).value) == (101, 1)
    assert h.init(had).value == FENCED


def test_another_epoch_of_an_exhausted_id() -> None:
    assert found(32_766).init(Producer(5, 32_000)).value == FENCED


@pytest.mark.parametrize("version", [0, 2])
def test_the_coordinators_own_epoch_is_never_returned(version: int) -> None:
    """A transaction in the last epoch is fenced with 32767."""
    h = found(32_766, TransactionState.ONGOING, partitions=frozenset({T0}))
    h.version = version
    assert h.init().value == WAIT
    assert [markers.producer_epoch for markers in h.written] == [32_767]
    assert given(h.init().value) == (101, 0)


def test_a_producer_that_timed_out_in_its_last_epoch() -> None:
    h = found(32_766, TransactionState.ONGOING, partitions=frozenset({T0}))
    h.advance(60_001)
    assert h.log.last() is not None
    assert h.end(Producer(5, 32_766), committed=False, client_version=2).value.error is ErrorCode.PRODUCER_FENCED
    assert given(h.init(Producer(5, 32_766)).value) == (101, 0)
    assert given(h.init(Producer(5, 32_766)).value) == (101, 0), "it did not hear of it"


@pytest.mark.parametrize("version", [0, 2])
def test_no_client_may_use_the_coordinators_own_epoch(version: int) -> None:
    """Nothing could fence it: its transaction would never end, and block the readers of its partitions."""
    h = found(32_766, TransactionState.ONGOING, partitions=frozenset({T0}))
    h.version = version
    h.advance(60_001)
    own = Producer(5, 32_767)
    assert h.add(own).value is ErrorCode.PRODUCER_FENCED
    for client_version in (0, 2):
        assert h.end(own, committed=False, client_version=client_version).value.error is ErrorCode.PRODUCER_FENCED
    request = AddPartitionsRequest("t", own, frozenset({T0}))
    assert h.coordinator.verify_partitions(request) == {T0: ErrorCode.PRODUCER_FENCED}


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_that_was_begun_in_the_coordinators_own_epoch_is_aborted(version: int) -> None:
    h = found(32_767, TransactionState.ONGOING, partitions=frozenset({T0}))
    h.version = version
    h.advance(60_001)
    assert h.state() == "CompleteAbort"
    assert given(h.init().value) == (101, 0)


# An open transaction


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_open_transaction_is_aborted_first(version: int) -> None:
    h = Harness(version=version, auto=False)
    had = Producer(101, 0)
    for ask in (h.init, lambda: h.add(had)):
        ask()
        h.finish_append()
    answer = h.init()
    h.finish_append()
    assert answer.value == WAIT
    assert h.init().value == WAIT, "markers are being written"
    h.finish_all()
    last = h.log.last()
    assert last is not None
    assert (last.state, last.producer_epoch) == (TransactionState.COMPLETE_ABORT, 1), "raised once"
    assert [(m.committed, m.producer_epoch, m.coordinator_epoch) for m in h.written] == [(False, 1, 7)]
    again = h.init()
    h.finish_all()
    assert given(again.value) == (101, 2)
    assert h.add(had).value is ErrorCode.PRODUCER_FENCED


def test_after_a_transaction() -> None:
    h = Harness()
    producer = h.producer()
    h.add(producer)
    h.end(producer)
    assert given(h.init().value) == (101, 1)
    assert h.state() == "Empty"
