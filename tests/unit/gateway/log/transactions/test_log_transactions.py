"""A log's transactions on a fake topic: open and aborted ones advance with the end, and survive the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from unittest.mock import AsyncMock, Mock

import pytest

from gateway.errors import KafkaError
from gateway.log.bounds import transaction_flag
from gateway.log.shared import MAX_SCANS
from gateway.log.transactions.log_transactions import LogTransactions
from gateway.log.transactions.marker_appends import MarkerForm
from gateway.pulsar.errors import ConnectionLostError
from protocol.kafka.batch import BatchHeader, iter_headers, parse_header
from protocol.kafka.errors import ErrorCode
from protocol.kafka.records import Record, encode_batch
from protocol.kafka.transaction_marker import MarkerType, TransactionMarker
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.log.log_scene import Scene, batch
from tests.unit.gateway.log.transactions.transaction_scene import TransactionScene, decided, transactional

ABORT, COMMIT = MarkerType.ABORT, MarkerType.COMMIT


@pytest.fixture
async def scene(no_settling: None) -> TransactionScene:
    scene = TransactionScene()
    scene.topic.write(bytes(batch()), 1, "another", 0)
    await scene.lead()
    return scene


async def test_an_open_transaction_holds_up_the_stable_end(scene: TransactionScene) -> None:
    assert await decided(scene.log) == (1, [])
    assert await scene.begin(7) == [(1, None)]
    assert await scene.begin(8) == [(2, None)]
    assert await decided(scene.log) == (1, [])
    await scene.end(7, COMMIT)
    assert await decided(scene.log) == (2, [])
    await scene.end(8, ABORT)
    assert await decided(scene.log) == (5, [(8, 2)])
    assert scene.log.end_offset == 5


async def test_no_epoch_is_verified_without_a_verification(scene: TransactionScene) -> None:
    await scene.log.transactions.prepare()
    headers = [parse_header(transactional(7, 0, epoch)) for epoch in (-2, -1, 0, 1)]
    assert all(scene.log.transactional_writes.needs_verification(header) for header in headers)


async def test_a_marker_is_a_control_batch_with_an_offset_of_its_own(scene: TransactionScene) -> None:
    await scene.begin(7)
    await scene.end(7, COMMIT)
    found = scene.log.reader.read(2, 1 << 20)
    assert found is not None
    headers: list[BatchHeader] = [header for chunk in found.chunks for _, header in iter_headers(bytes(chunk))]
    assert [(h.base_offset, h.is_control, h.is_transactional, h.producer_id) for h in headers] == [(2, True, True, 7)]


async def test_the_next_leader_knows_what_is_open_and_aborted(scene: TransactionScene) -> None:
    await scene.begin(7)
    await scene.begin(8)
    await scene.end(7, ABORT)
    before = await decided(scene.log)
    other = await scene.opened()
    assert not other.transactions.loaded
    assert await decided(other) == before == (2, [(7, 1)])


async def test_the_highest_offset_is_known(scene: TransactionScene) -> None:
    """A fetch may name it. It was looked for without end, and no client was served any more."""
    highest = 2**63 - 1
    assert scene.log.transactions.knows(highest)
    await scene.begin(7)
    await scene.end(7, ABORT)
    other = await scene.opened()
    await other.transactions.prepare_to_read(highest)
    assert other.transactions.aborted_between(highest, other.transactions.known_to(highest)) == []


async def test_a_gateway_that_only_reads_follows(scene: TransactionScene) -> None:
    reader = await scene.opened()
    assert reader.transactions.loaded
    await scene.begin(7)
    await reader.end.refresh()
    assert await decided(reader) == (1, [])
    await scene.end(7, ABORT)
    await reader.end.refresh()
    assert await decided(reader) == await decided(scene.log) == (3, [(7, 1)])


async def test_what_the_follower_passes_over_is_read(scene: TransactionScene) -> None:
    reader = await scene.opened()
    await scene.begin(7)
    await scene.plain()
    entries = scene.topic.entries
    hidden = entries.pop(1)
    await reader.end.refresh()
    entries.insert(1, hidden)
    assert reader.end_offset == 3
    assert not reader.transactions.loaded
    assert await decided(reader) == (1, [])


async def test_a_log_without_transactions_costs_no_request(scene: TransactionScene) -> None:
    asked = 0

    async def properties(topic: str) -> dict[str, str]:
        nonlocal asked
        asked += 1
        return scene.topic.properties

    scene.topic.managed_ledger_properties = properties  # type: ignore[method-assign]
    await scene.plain()
    assert await decided(scene.log) == (2, [])
    assert asked == 0
    await scene.begin(7)
    assert asked == 1
    assert transaction_flag.flagged_position(scene.topic.properties) is not None


async def test_unverified_batches_are_refused(scene: TransactionScene) -> None:
    with pytest.raises(KafkaError) as error:
        await scene.begin(7, verified=False)
    assert error.value.code == ErrorCode.CONCURRENT_TRANSACTIONS


async def test_a_marker_undoes_verifications(scene: TransactionScene) -> None:
    verifications = scene.log.transactional_writes.verifications
    under_way = verifications.begin(7)
    await scene.begin(7)
    assert await scene.begin(7, verified=False)
    await scene.end(7, COMMIT)
    verifications.verified(under_way, 7, 0)
    with pytest.raises(KafkaError) as error:
        await scene.begin(7, verified=False)
    assert error.value.code == ErrorCode.CONCURRENT_TRANSACTIONS


async def test_when_a_verification_is_all_that_a_batch_lacks(scene: TransactionScene) -> None:
    def lacks_verification() -> bool:
        return scene.log.lacks_verification(parse_header(transactional(7, scene.sequences.get((7, 0), 0))), 1, 0.0)

    await scene.log.prepare_for_producers()
    assert not lacks_verification(), "the log has no flag yet"
    await scene.begin(7)
    assert not lacks_verification(), "the transaction is open"
    await scene.end(7, COMMIT)
    assert lacks_verification()
    assert not scene.log.lacks_verification(parse_header(batch()), 1), "it belongs to no transaction"
    await scene.lead()
    await scene.log.prepare_for_producers()
    assert not lacks_verification(), "the log's transactions are not read yet"
    await scene.lead()
    await scene.log.writer.wait_until_ready()
    await scene.log.transactions.prepare()
    assert not lacks_verification(), "the producer's batches are not read yet"


async def test_an_open_transaction_continues_under_the_next_leader(scene: TransactionScene) -> None:
    await scene.begin(7)
    await scene.lead()
    assert await scene.begin(7, verified=False) == [(2, None)]
    with pytest.raises(KafkaError):
        await scene.begin(7, epoch=1, verified=False)


async def test_a_doubted_producer_is_verified_though_a_transaction_is_open(scene: TransactionScene) -> None:
    await scene.begin(7)
    scene.log.transactions.suspect_hanging(7)
    with pytest.raises(KafkaError) as error:
        await scene.begin(7, verified=False)
    assert error.value.code == ErrorCode.CONCURRENT_TRANSACTIONS
    scene.sequences[7, 0] = 1  # as a producer that retries the refused batch
    assert await scene.begin(7) == [(2, None)]
    await scene.end(7, COMMIT)
    await scene.begin(7)
    assert await scene.begin(7, verified=False) == [(5, None)]


async def test_plain_batches_of_a_producer_wait_for_its_transactions_end(scene: TransactionScene) -> None:
    await scene.begin(7)
    data = memoryview(encode_batch([Record(0, 1, None, b"", ())], producer_id=7, producer_epoch=0, base_sequence=1))
    with pytest.raises(KafkaError) as error:
        scene.log.append(data, parse_header(data), 1, lambda *_: None)
    assert error.value.code == ErrorCode.INVALID_TXN_STATE


async def test_a_marker_that_is_asked_for_again_is_written_once(scene: TransactionScene) -> None:
    await scene.begin(7)
    marker = TransactionMarker(COMMIT, 7, 0, 0)
    await scene.log.prepare_marker()
    append = scene.log.transactional_writes.append_marker
    first, again = append(marker, 0, MarkerForm()), append(marker, 0, MarkerForm())
    with pytest.raises(KafkaError):
        append(marker._replace(coordinator_epoch=1), 0, MarkerForm())
    await scene.write()
    await asyncio.gather(first, again)
    assert scene.log.end_offset == 3


async def test_a_marker_fences_earlier_epochs(scene: TransactionScene) -> None:
    await scene.begin(7)
    await scene.end(7, ABORT, epoch=1)
    with pytest.raises(KafkaError) as error:
        await scene.begin(7)
    assert error.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await scene.begin(7, epoch=1) == [(3, None)]
    with pytest.raises(KafkaError) as error:
        await scene.end(7, COMMIT)
    assert error.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(KafkaError) as error:
        await scene.end(7, COMMIT, epoch=1, coordinator_epoch=-1)
    assert error.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED


async def test_the_window_goes_on_behind_a_marker_of_the_same_epoch(scene: TransactionScene) -> None:
    await scene.begin(7, count=3)
    await scene.end(7, COMMIT)
    assert await scene.begin(7) == [(5, None)]
    await scene.end(7, COMMIT)
    await scene.lead()
    assert await scene.begin(7) == [(7, None)]
    with pytest.raises(KafkaError) as error:
        scene.sequences[7, 0] += 1
        await scene.begin(7)
    assert error.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_a_read_up_to_the_stable_end_takes_part_of_an_entry(scene: TransactionScene) -> None:
    transactions = scene.log.transactions
    data = transactional(7, 0)
    await scene.log.prepare(parse_header(data), 1)
    transactions.verifications.verified(transactions.verifications.begin(7), 7, 0)
    for each in (batch(2), data, batch(1)):
        scene.log.append(each, parse_header(each), 1, lambda *_: None)
    await scene.write()
    assert (scene.log.end_offset, len(scene.topic.entries)) == (5, 2)
    stable = transactions.last_stable_offset
    assert stable == 3
    reader = scene.log.reader
    found = reader.read(1, 1 << 20, before=stable)
    assert found is not None
    assert (found.size_bytes, found.next_offset) == (len(batch(2)), 3)
    assert reader.available_bytes(1, stable) == len(batch(2))
    assert reader.available_bytes(1) == len(batch(2)) + len(data) + len(batch(1))
    assert reader.available_bytes(3, stable) == 0
    assert reader.read(3, 1 << 20, before=stable) == ([], 0, 3)


async def marker_on_its_way(scene: TransactionScene) -> asyncio.Future[None]:
    """Queued, in a log where producer 7 has an open transaction."""
    await scene.begin(7)
    await scene.log.prepare_marker()
    marker = TransactionMarker(COMMIT, 7, 0, 0)
    return asyncio.ensure_future(scene.log.transactional_writes.append_marker(marker, 0, MarkerForm()))


async def test_a_marker_that_waits_is_given_up_with_the_lease(scene: TransactionScene) -> None:
    written = await marker_on_its_way(scene)
    scene.log.writer.on_lease_lost()
    with pytest.raises(KafkaError) as error:
        await written
    assert error.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await scene.write()
    assert await decided(scene.log) == (1, [])
    assert scene.log.end_offset == 2
    await scene.end(7, ABORT)
    assert await decided(scene.log) == (3, [(7, 1)])


@pytest.mark.parametrize("arrived", [True, False])
async def test_a_marker_whose_producer_is_lost_is_written_once(scene: TransactionScene, arrived: bool) -> None:
    written = await marker_on_its_way(scene)
    await let_callbacks_run()
    producer = scene.topic.producers[-1]
    (sequence_id,) = producer.sent
    if arrived:
        producer.write(sequence_id)
    producer.lose()
    async with asyncio.timeout(5):
        while not arrived and not scene.topic.producers[-1].sent.keys() - {sequence_id}:
            await asyncio.sleep(0.01)
        await scene.write()
        await written
    assert scene.log.end_offset == 3
    assert (await decided(scene.log))[0] == 3


async def test_a_marker_whose_producer_is_lost_with_the_lease_never_comes(scene: TransactionScene) -> None:
    written = await marker_on_its_way(scene)
    await let_callbacks_run()
    scene.leads = False
    scene.topic.producers[-1].lose()
    async with asyncio.timeout(5):
        with pytest.raises(KafkaError):
            await written
    assert (await decided(scene.log))[0] == 1


async def test_a_client_that_leaves_does_not_take_its_marker_along(scene: TransactionScene) -> None:
    written = await marker_on_its_way(scene)
    written.cancel()
    await scene.write()
    assert await decided(scene.log) == (3, [])


async def test_the_windows_of_open_transactions_are_not_forgotten(scene: TransactionScene) -> None:
    await scene.begin(7)
    state = scene.log.producers.state
    state.forget(7)
    assert 7 in state
    await scene.end(7, COMMIT)
    state.forget(7)
    assert 7 not in state


async def test_transactions_that_could_not_be_read_are_read_again_although_the_timer_is_early(
    scene: TransactionScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Timers of uvloop may fire almost a millisecond early: then fetches of committed records waited ten seconds."""
    await scene.begin(7)
    fresh = await scene.opened()
    loop, timers = asyncio.get_running_loop(), list[Callable[[], object]]()

    def call_later(delay_s: float, callback: Callable[[], object]) -> Mock:
        timers.extend([callback] if callback == fresh.transactions._retry else [])
        return Mock()

    with monkeypatch.context() as failing:
        failing.setattr(scene.topic, "open_reader", AsyncMock(side_effect=ConnectionLostError("lost")))
        failing.setattr(loop, "call_later", call_later)
        fresh.transactions.start_loading(0)
        await let_callbacks_run()
    fresh.transactions.start_loading(0)
    assert not fresh.transactions.loaded
    assert fresh.transactions._loading is None, "not at once"
    [retry] = timers
    retry()
    fresh.transactions.start_loading(0)
    await let_callbacks_run()
    assert fresh.transactions.loaded


async def test_few_logs_are_read_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart, clients fetch from thousands of them."""
    reading, most = 0, 0

    async def load_from(own: LogTransactions, fetch_offset: int) -> None:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        await asyncio.sleep(0)
        reading -= 1
        own.loaded = True

    monkeypatch.setattr(LogTransactions, "_load_from", load_from)
    logs = [Scene().log for _ in range(5 * MAX_SCANS)]
    for each in logs:
        each.transactions._resources, each.transactions.loaded = logs[0].resources, False
    await asyncio.gather(*(each.transactions.prepare() for each in logs))
    assert 1 < most <= MAX_SCANS
