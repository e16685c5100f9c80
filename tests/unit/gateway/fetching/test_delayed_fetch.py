"""A fetch is answered once: when there is enough data, at max_wait, or at an error."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from gateway.errors import KafkaError
from gateway.fetching import delayed_fetch
from gateway.fetching.delayed_fetch import DelayedFetch
from gateway.fetching.fetch_answer import FetchAnswer
from gateway.log.entries.log_entry import Slice
from gateway.log.transactions.aborted_list import AbortedTransaction
from gateway.pulsar.errors import ConnectionLostError, ServiceNotReadyError
from protocol.kafka.errors import ErrorCode
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.fetching.delayed_fetch_scene import BATCH, FakeLog, answer, fetch, opening, parked, started


async def test_what_is_there_is_answered_at_once() -> None:
    outcome = started(fetch((FakeLog(3), 1)))
    assert not isinstance(outcome, asyncio.Future)
    assert await answer(outcome) == [(0, 2 * BATCH)]


async def test_new_records_wake_it_and_nothing_is_left_behind() -> None:
    log, other = FakeLog(3), FakeLog(0)
    outcome = parked(fetch((log, 3), (other, 0)))
    assert len(log.waiters) == len(other.waiters) == 1
    log.move()
    assert await answer(outcome) == [(0, BATCH), (0, 0)]
    await let_callbacks_run()
    assert not log.waiters
    assert not other.waiters
    log.move()  # the fetch does not notice it


async def test_it_waits_for_min_bytes_of_all_partitions_together() -> None:
    logs = FakeLog(0), FakeLog(0)
    outcome = parked(fetch((logs[0], 0), (logs[1], 0), min_bytes=2 * BATCH))
    logs[0].move()
    await let_callbacks_run()
    assert not outcome.done()
    logs[1].move()
    assert await answer(outcome) == [(0, BATCH), (0, BATCH)]


async def test_max_wait_answers_what_there_is() -> None:
    assert await answer(started(fetch((FakeLog(1), 0), max_wait_ms=1, min_bytes=1_000))) == [(0, BATCH)]


async def test_without_max_wait_nothing_is_parked() -> None:
    outcome = started(fetch((FakeLog(0), 0), max_wait_ms=0))
    assert not isinstance(outcome, asyncio.Future)


async def test_older_records_on_their_way_are_waited_for_beyond_max_wait() -> None:
    log = FakeLog(5, memory_start=5)
    outcome = parked(fetch((log, 0), max_wait_ms=0))
    await asyncio.sleep(0.01)
    assert not outcome.done()
    log.loaded = True
    log.move(0)
    assert await answer(outcome) == [(0, 5 * BATCH)]


@pytest.mark.parametrize("offset", [-1, 9])
async def test_out_of_range(offset: int) -> None:
    log = FakeLog(3)
    log.refresh.set_result(None)
    outcome = started(fetch((log, offset)))
    assert await answer(outcome) == [(ErrorCode.OFFSET_OUT_OF_RANGE, 0)]


async def test_a_broker_that_does_not_own_the_topic_any_more_calls_no_offset_out_of_range() -> None:
    """The consumer would reset its offset, though another broker has the records."""
    log = FakeLog(3)
    log.refresh.set_result(None)
    log.owner_error = ServiceNotReadyError("another broker owns it")
    assert await answer(started(fetch((log, 9)))) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)]


async def test_what_is_said_of_an_offset_beyond_the_end_is_the_handlers() -> None:
    log = FakeLog(3)
    log.refresh.set_result(None)
    asked = fetch((log, 9), beyond_end=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert await answer(started(asked)) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)]


async def test_an_offset_that_is_being_looked_up_is_not_out_of_range(no_grace: None) -> None:
    """Other partitions have enough for a response, and the consumer would reset its offset."""
    log, other = FakeLog(3), FakeLog(1)
    assert await answer(started(fetch((log, 5), (other, 0), max_wait_ms=1))) == [(0, 0), (0, BATCH)]


async def test_an_offset_out_of_range_is_reported_though_others_have_enough() -> None:
    log, other = FakeLog(3), FakeLog(1)
    outcome = parked(fetch((log, 5), (other, 0)))
    await let_callbacks_run()
    assert not outcome.done()
    log.refresh.set_result(None)
    assert await answer(outcome) == [(ErrorCode.OFFSET_OUT_OF_RANGE, 0), (0, BATCH)]


async def test_an_offset_out_of_range_is_reported_beside_other_errors() -> None:
    """Otherwise a topic that is gone would hide it for ever: each answer ends the lookup."""
    log, cold = FakeLog(3), opening()
    outcome = parked(fetch((log, 5), (cold, 0), (FakeLog(3), -1)))
    cold.set_exception(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    await let_callbacks_run()
    assert not outcome.done()
    log.refresh.set_result(None)
    out_of_range, unknown = ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await answer(outcome) == [(out_of_range, 0), (unknown, 0), (out_of_range, 0)]


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH])
async def test_an_error_of_reading_is_reported_though_others_wait(error: ErrorCode) -> None:
    """As in Kafka: the client needs it to find the partition's leader."""
    delayed = fetch((FakeLog(3), 3), (FakeLog(3), 0))
    delayed._parts[1].log, delayed._parts[1].error = None, error
    assert await answer(delayed.start()) == [(0, 0), (error, 0)]


@pytest.mark.parametrize(
    "error",
    [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED],
)
async def test_an_error_before_reading_does_not_end_the_wait_of_others(error: ErrorCode) -> None:
    """As in Kafka. A client that fetches a deleted topic would fetch all the time."""
    log = FakeLog(3)
    delayed = fetch((log, 3), (FakeLog(3), 0))
    delayed._parts[1].log, delayed._parts[1].error = None, error
    outcome = parked(delayed)
    log.move()
    assert await answer(outcome) == [(0, BATCH), (error, 0)]


async def test_a_log_that_is_closed_is_reported_though_others_wait() -> None:
    log, other = FakeLog(3), FakeLog(3)
    outcome = parked(fetch((log, 3), (other, 3)))
    log.closed = True
    log.move(0)
    assert await answer(outcome) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0), (0, 0)]


async def test_a_lookup_that_takes_too_long_leaves_the_offset_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_fetch, "READ_WAIT_S", 0.02)
    assert await answer(started(fetch((FakeLog(3), 5), max_wait_ms=1))) == [(0, 0)]


async def test_a_late_error_is_reported_at_once() -> None:
    """Although the other partitions would wait for more."""
    quiet, log = FakeLog(3), FakeLog(3)
    outcome = parked(fetch((quiet, 3), (log, 9)))
    await let_callbacks_run()
    assert not outcome.done()
    log.refresh.set_result(None)
    assert await answer(outcome) == [(0, 0), (ErrorCode.OFFSET_OUT_OF_RANGE, 0)]


async def test_an_offset_beyond_the_known_end_is_looked_up() -> None:
    """Another gateway may have written it."""
    log = FakeLog(3)
    outcome = parked(fetch((log, 5)))
    await let_callbacks_run()
    assert not outcome.done()
    log.end_offset = 7
    log.refresh.set_result(None)
    assert await answer(outcome) == [(0, 2 * BATCH)]


async def test_once_max_wait_is_over_the_lookup_is_all_it_waits_for() -> None:
    log = FakeLog(3)
    outcome = parked(fetch((log, 5), max_wait_ms=1))
    await asyncio.sleep(0.02)
    assert not outcome.done()
    log.end_offset = 5
    log.refresh.set_result(None)
    assert await answer(outcome) == [(0, 0)]


async def test_a_reader_with_more_records_of_the_epoch_diverges() -> None:
    log = FakeLog(3)
    log.refresh.set_result(None)
    delayed = fetch((log, 5))
    delayed._parts[0].fetched.fetched_epoch = 0
    outcome = parked(delayed)
    assert await answer(outcome) == [(0, 0)]
    diverging = outcome.result().responses[0].partitions[0].diverging_epoch
    assert diverging is not None
    assert (diverging.epoch, diverging.end_offset) == (0, 3)


async def test_a_failed_lookup_is_reported() -> None:
    log = FakeLog(3)
    outcome = started(fetch((log, 5)))
    await let_callbacks_run()
    log.refresh.set_exception(ConnectionLostError("lost"))
    assert await answer(outcome) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)]


async def test_a_defect_reaches_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog(0)
    outcome = parked(fetch((log, 0)))
    monkeypatch.setattr(log, "read", lambda *_, **__: 1 / 0)
    log.move()
    with pytest.raises(ZeroDivisionError):
        await outcome


@pytest.mark.parametrize("max_wait_ms", [1, 60_000])
async def test_a_defect_while_it_waits_reaches_the_connection(
    monkeypatch: pytest.MonkeyPatch, max_wait_ms: int
) -> None:
    log = FakeLog(3)
    outcome = parked(fetch((log, 3), max_wait_ms=max_wait_ms))
    monkeypatch.setattr(DelayedFetch, "_satisfied", Mock(side_effect=AssertionError("defect")))
    if max_wait_ms > 1:
        log.move()
    with pytest.raises(AssertionError):
        await answer(outcome)
    assert not log.waiters


async def test_a_lost_connection_unparks_it() -> None:
    log = FakeLog(3)
    outcome = parked(fetch((log, 5)))
    outcome.cancel()
    await let_callbacks_run()
    assert not log.waiters
    assert log.refresh.cancelled()


async def test_many_wakes_in_one_turn_are_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = [FakeLog(0) for _ in range(50)]
    fetching = fetch(*((log, 0) for log in logs), min_bytes=1_000_000)
    outcome = parked(fetching)
    looks = Mock(side_effect=fetching._satisfied)
    monkeypatch.setattr(fetching, "_satisfied", looks)
    for log in logs:
        log.move()
    await let_callbacks_run()
    assert looks.call_count == 1
    outcome.cancel()


async def test_only_near_its_end_a_log_looks_for_what_others_write() -> None:
    lagging, at_end, near = FakeLog(3, memory_start=3), FakeLog(3), FakeLog(3)
    outcome = parked(fetch((lagging, 0), (at_end, 3), (near, 2), min_bytes=1_000_000))
    assert [log.waiters.at_end for log in (lagging, at_end, near)] == [False, True, True]
    outcome.cancel()


async def test_a_fetch_waits_at_the_end_when_it_is_known_that_a_transaction_is_open_there() -> None:
    """Another gateway may write its marker: the log has to look for it."""
    log, known_to = FakeLog(3, memory_start=3), 1
    log.transactions = SimpleNamespace(
        loaded=True, last_stable_offset=1, flagged=True, are_absent=False, known_to=lambda _: known_to,
        start_loading=lambda _: None,
    )  # fmt: skip
    outcome = parked(fetch((log, 1), read_committed=True))
    assert not log.waiters.at_end
    known_to = 3
    log.move()
    await let_callbacks_run()
    assert log.waiters.at_end and not outcome.done()
    outcome.cancel()


async def test_aborted_transactions_are_named_as_soon_as_they_are_read() -> None:
    """Another gateway has written them: this one still looks for the flag that says so."""
    log = FakeLog(4)
    log.transactions = SimpleNamespace(
        loaded=True, last_stable_offset=4, flagged=False, are_absent=False, known_to=lambda _: 4,
        aborted_between=lambda *_: [AbortedTransaction(7, 1, 2, 3)],
    )  # fmt: skip
    found = started(fetch((log, 0), read_committed=True))
    assert isinstance(found, FetchAnswer)
    aborted = found.responses[0].partitions[0].aborted_transactions
    assert [(each.producer_id, each.first_offset) for each in aborted or ()] == [(7, 1)]


@pytest.mark.parametrize(("entry_bytes", "is_shared"), [(BATCH, True), (2 * BATCH, False)])
async def test_answers_without_room_copy_only_small_parts_of_entries(entry_bytes: int, is_shared: bool) -> None:
    """Hundreds of fetches may be answered in one turn: as many copies of a large batch would exceed the memory."""
    entry = bytearray(entry_bytes)
    log = FakeLog(1)
    log.read = lambda *_, **__: Slice([memoryview(entry)[:BATCH]], BATCH, 1)  # type: ignore[method-assign]
    found = started(fetch((log, 0), room_bytes=0))
    assert isinstance(found, FetchAnswer)
    [chunk] = found.responses[0].partitions[0].records.chunks
    assert (isinstance(chunk, memoryview) and chunk.obj is entry) == is_shared
