"""Phases, DescribeTransactions, ListTransactions, and errors by version."""

import pytest

from coordinator.transaction.messages import ListTransactionsRequest
from coordinator.transaction.states import TransactionState
from coordinator.transaction.version_errors import SUBSTITUTES, Api, error_for_version
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.transaction.transaction_harness import Harness


@pytest.mark.parametrize("resigned", [False, True])
def test_phases(resigned: bool) -> None:
    h = Harness(load=False)
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if resigned:
        h.coordinator.resign(h.now_ms)
        error = ErrorCode.NOT_COORDINATOR
    nobody = h.init().value.producer
    assert h.init().value.error is error
    assert h.init(timeout_ms=0).value.error is ErrorCode.INVALID_TRANSACTION_TIMEOUT, "as in Kafka, looked at before"
    assert h.add(nobody).value is error
    assert h.end(nobody).value.error is error
    assert h.coordinator.describe("t").error is error
    assert h.coordinator.list_transactions(ListTransactionsRequest(), 0).error is error
    assert h.coordinator.next_deadline_ms() is None


def test_what_is_under_way_when_it_resigns() -> None:
    h = Harness(auto=False)
    answer = h.init()
    h.coordinator.resign(h.now_ms)
    h.finish_append()
    assert answer.value.error is ErrorCode.NOT_COORDINATOR
    later = h.reloaded()
    assert later.state() == "Empty"


def test_markers_of_a_coordinator_that_resigned_change_nothing() -> None:
    h = Harness()
    producer = h.producer()
    h.add(producer)
    h.auto = False
    h.end(producer)
    h.finish_append()
    h.coordinator.resign(h.now_ms)
    h.finish_marker()
    assert not h.log.waiting


def test_open_and_complete_transactions_are_counted() -> None:
    h = Harness(auto=False)
    opened = h.coordinator
    assert (len(opened.open_transactions), opened.open_transactions.oldest_ms) == (0, None)
    for committed, state in ((True, TransactionState.COMPLETE_COMMIT), (False, TransactionState.COMPLETE_ABORT)):
        h.auto = True
        producer = h.producer()
        h.advance(10)
        began_ms = h.now_ms
        h.add(producer)
        h.advance(10)
        h.auto = False
        h.end(producer, committed)
        h.finish_append()
        assert (len(opened.open_transactions), opened.open_transactions.oldest_ms) == (1, began_ms)
        assert not h.completed
        h.finish_all()
        assert (len(opened.open_transactions), opened.open_transactions.oldest_ms) == (0, None)
        assert h.completed == [state]
        h.completed.clear()


def test_what_was_open_when_it_was_loaded_counts() -> None:
    h = Harness()
    h.add(h.producer("open"), name="open")
    done = h.producer("done")
    h.add(done, name="done")
    h.end(done, name="done")
    later = h.reloaded(auto=False)
    assert len(later.coordinator.open_transactions) == 1
    assert not later.completed
    later.coordinator.resign(later.now_ms)
    assert len(later.coordinator.open_transactions) == 0


def test_waiting_requests_are_notified_when_they_can_run() -> None:
    h = Harness()
    told: list[str] = []
    producer = h.producer()
    h.coordinator.notify_when_free("t", lambda: told.append("free"))
    h.coordinator.notify_when_free("unknown", lambda: told.append("unknown"))
    assert told == ["free", "unknown"]
    h.add(producer)
    h.auto = False
    h.end(producer)

    def leaves() -> None:
        told.append("gone")

    h.coordinator.notify_when_free("t", lambda: told.append("complete"))
    h.coordinator.notify_when_free("t", leaves)
    h.coordinator.stop_notifying("t", leaves)
    h.coordinator.stop_notifying("t", leaves)
    h.finish_append()
    h.finish_marker()
    assert h.add(producer).value is ErrorCode.CONCURRENT_TRANSACTIONS
    assert len(told) == 2
    h.finish_append()
    assert told[2:] == ["complete"]
    h.auto = True
    assert h.add(producer).value is ErrorCode.NONE
    assert len(told) == 3


def listed(h: Harness, **filters: object) -> list[str]:
    request = ListTransactionsRequest(**filters)  # type: ignore[arg-type]
    response = h.coordinator.list_transactions(request, h.now_ms)
    assert response.error is ErrorCode.NONE
    return [each.transactional_id for each in response.transactions]


def test_lists() -> None:
    h = Harness()
    old = h.producer("old")
    h.add(old, name="old")
    h.advance(1_000)
    young = h.producer("young")
    h.add(young, name="young")
    h.producer("empty")
    assert listed(h) == ["old", "young", "empty"]
    assert listed(h, producer_ids=frozenset({old.id, 7})) == ["old"]
    assert listed(h, states=frozenset({"Ongoing", "Nonsense"})) == ["old", "young"]
    assert listed(h, states=frozenset({"ongoing"})) == []
    assert listed(h, longer_than_ms=0) == ["old", "empty"]
    assert listed(h, longer_than_ms=1_000) == ["empty"]
    among = h.coordinator.list_transactions(ListTransactionsRequest(), h.now_ms, ["young", "gone"])
    assert [each.transactional_id for each in among.transactions] == ["young"]
    assert h.coordinator.transactional_ids() == ["old", "young", "empty"]


def test_filters_that_are_wrong() -> None:
    h = Harness()
    unknown = h.coordinator.list_transactions(ListTransactionsRequest(states=frozenset({"b", "a", "Dead"})), 0)
    assert (unknown.error, unknown.unknown_states) == (ErrorCode.NONE, ["a", "b"])


def test_describe() -> None:
    h = Harness()
    assert h.coordinator.describe("t").error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert h.coordinator.describe("").error is ErrorCode.INVALID_REQUEST
    producer = h.producer()
    described = h.coordinator.describe("t")
    assert (described.state, described.producer, described.start_ms) == ("Empty", producer, -1)


@pytest.mark.parametrize(
    ("api", "version", "error", "told"),
    [
        (Api.INIT_PRODUCER_ID, 3, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (Api.INIT_PRODUCER_ID, 4, ErrorCode.PRODUCER_FENCED, ErrorCode.PRODUCER_FENCED),
        (Api.END_TXN, 1, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (Api.END_TXN, 1, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (Api.PRODUCE, 12, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (Api.PRODUCE, 10, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (Api.PRODUCE, 11, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (Api.PRODUCE, 12, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (Api.PRODUCE, 12, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (Api.TXN_OFFSET_COMMIT, 1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_errors_by_version(api: Api, version: int, error: ErrorCode, told: ErrorCode) -> None:
    assert error_for_version(api, version, error) is told


def test_every_api_has_its_row() -> None:
    assert set(SUBSTITUTES) == set(Api)
