"""Markers of transactions, and a log that refuses records or is lost."""

import pytest

from coordinator.topics import TopicPartition
from coordinator.transaction.messages import EndTxnResponse
from coordinator.transaction.ports import MarkerOutcome, SlowTransaction
from protocol.kafka.errors import ErrorCode
from tests.unit.coordinator.transaction.transaction_harness import T0, T1, ongoing

NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED


def test_markers_that_fail_are_written_again() -> None:
    h, producer = ongoing(auto=False)
    h.end(producer)
    h.finish_append()
    h.finish_marker(MarkerOutcome.FAILED)
    h.finish_marker()
    for _ in range(8):
        h.advance(5_000)
        assert [m.partition for m in h.markers.waiting] == [T0]
        h.finish_marker(MarkerOutcome.FAILED)
    h.auto = True
    h.advance(5_000)
    assert h.state() == "CompleteCommit"


def test_a_deleted_partition_needs_no_marker() -> None:
    h, producer = ongoing(auto=False)
    h.end(producer)
    h.finish_append()
    h.finish_marker(MarkerOutcome.GONE)
    h.finish_all()
    assert h.state() == "CompleteCommit"
    assert len(h.written) == 1


def test_a_fenced_marker_is_left_to_the_next_coordinator() -> None:
    h, producer = ongoing(auto=False)
    h.end(producer)
    h.finish_append()
    h.finish_marker(MarkerOutcome.FENCED)
    h.finish_all()
    h.advance(10_000)
    assert not h.markers.waiting
    assert h.state() == "PrepareCommit"
    later = h.reloaded()
    assert later.state() == "CompleteCommit"
    assert {m.coordinator_epoch for m in later.written} == {8}


def test_a_fenced_marker_is_reported_and_written_again_if_there_is_no_other_coordinator() -> None:
    h, producer = ongoing(auto=False)
    h.end(producer)
    h.finish_append()
    h.finish_marker(MarkerOutcome.FENCED)
    h.finish_marker()
    h.advance(30_000)
    assert h.slow == [[SlowTransaction("t", producer.id, 30, {T0}, {T0})]]
    h.auto = True
    h.advance(10_000)
    assert h.state() == "CompleteCommit"
    h.advance(60_000)
    assert len(h.slow) == 1


def test_markers_that_take_long_are_reported_and_not_written_twice() -> None:
    h, producer = ongoing(auto=False)
    h.end(producer)
    h.finish_append()
    h.finish_marker()
    h.advance(60_000)
    assert [[(each.partitions, each.fenced) for each in slow] for slow in h.slow] == [[({T1}, set())]] * 2
    assert len(h.markers.waiting) == 1


# The log refuses, or is lost


def test_a_refused_end_changes_nothing() -> None:
    h, producer = ongoing(auto=False)
    answer = h.end(producer)
    h.finish_append(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert answer.value == EndTxnResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert h.state() == "Ongoing"
    h.auto = True
    assert h.end(producer, committed=False).value.error is NONE


def test_too_many_partitions_for_a_record() -> None:
    h, producer = ongoing(auto=False)
    answer = h.add(producer, TopicPartition("u", 0))
    h.finish_append(ErrorCode.MESSAGE_TOO_LARGE)
    assert answer.value is ErrorCode.UNKNOWN_SERVER_ERROR
    assert h.coordinator.describe("t").partitions == {T0, T1}


def test_a_refused_completion_is_appended_again() -> None:
    h, producer = ongoing(auto=False)
    h.end(producer)
    h.finish_append()
    h.finish_marker()
    h.finish_marker()
    h.finish_append(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert h.state() == "PrepareCommit"
    h.auto = True
    h.advance(1_000)
    assert h.state() == "CompleteCommit"
    assert len(h.written) == 2


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_record_of_unknown_outcome_ends_the_coordinator(error: ErrorCode, told: ErrorCode) -> None:
    h, producer = ongoing(auto=False)
    answer = h.end(producer)
    h.finish_append(error)
    assert answer.value == EndTxnResponse(told)
    assert h.end(producer, committed=False).value.error is ErrorCode.NOT_COORDINATOR
    assert h.coordinator.next_deadline_ms() is None
