"""A log that is opened has the same transactions as one that has read everything, and reads little."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

import pytest

from gateway.config.limits import Limits
from gateway.errors import KafkaError
from gateway.log.bounds import transaction_flag
from gateway.log.bounds.transaction_flag import CHECKPOINT
from gateway.log.partition_log import PartitionLog
from gateway.log.transactions import checkpoints, log_prefix, log_transactions, past_aborted
from gateway.log.transactions.aborted_list import AbortedTransaction
from gateway.log.transactions.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from gateway.log.transactions.checkpoints import find_last
from gateway.log.transactions.events import events_of
from gateway.log.transactions.state import PartitionTransactions
from gateway.pulsar.position import Position
from protocol.kafka.errors import ErrorCode
from protocol.kafka.transaction_marker import MarkerType, TransactionMarker, encode_marker
from tests.unit.gateway.log.transactions.transaction_scene import TransactionScene, decided, shared_on, transactional

ABORT, COMMIT = MarkerType.ABORT, MarkerType.COMMIT


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "EVERY_ENTRIES", 5)
    monkeypatch.setattr(checkpoints, "EVERY_ABORTED", 2)


def reference(scene: TransactionScene) -> tuple[PartitionTransactions, int]:
    """The state after reading all that was ever written, and the end."""
    whole, end = PartitionTransactions(), 0
    for data, base_offset in scene.everything:
        for event in events_of(data, base_offset):
            event.apply_to(whole)
    entries = scene.topic.entries
    end = entries[-1][1] + 1 if entries else 0
    return whole, end


async def known(log: PartitionLog, offset: int) -> None:
    async with asyncio.timeout(5):
        await log.transactions.prepare()
        while not log.transactions.knows(offset):
            log.transactions.start_loading(offset)
            await asyncio.sleep(0)


async def agrees(scene: TransactionScene, log: PartitionLog, offsets: list[int]) -> None:
    await log.end.refresh()
    await log.start.refresh(at_most_every_s=0)
    whole, end = reference(scene)
    assert log.end_offset == end
    for offset in offsets:
        await known(log, offset)
        assert log.transactions.last_stable_offset == max(log.start.offset, whole.last_stable_offset(end))
        found = await log.transactions.read_aborted(offset, end)
        start = log.start.offset
        expected = {_ended(each): each.first_offset for each in whole.aborted_between(offset, end)}
        began = {_ended(each): each.first_offset for each in found}
        assert began.keys() <= expected.keys()
        for ended, first_offset in expected.items():  # what retention has deleted is never read
            assert began.get(ended) == first_offset or first_offset < start <= began.get(ended, end)


def _ended(aborted: AbortedTransaction) -> tuple[int, int]:
    return aborted.producer_id, aborted.last_offset


@pytest.mark.parametrize("seed", range(30))
async def test_random_histories(seed: int, no_settling: None, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    if seed % 3 == 0:
        monkeypatch.setattr(log_prefix, "MAX_ABORTED", 6)
        monkeypatch.setattr(log_prefix, "KEPT_ABORTED", 3)
        monkeypatch.setattr(past_aborted, "MAX_ABORTED", 4)
        monkeypatch.setattr(past_aborted, "LOOKED_AT", 2)
    scene = TransactionScene()
    await scene.plain_entry()
    await scene.lead()
    follower = await scene.opened()
    epochs = dict.fromkeys(range(1, 6), 0)
    for _ in range(80):
        producer_id = chance.randint(1, 5)
        step = chance.random()
        if step < 0.4:
            await scene.begin(producer_id, epochs[producer_id], chance.randint(1, 3))
        elif step < 0.7:
            epochs[producer_id] += chance.randint(0, 1)
            await scene.end(producer_id, chance.choice([ABORT, ABORT, COMMIT]), epochs[producer_id])
        elif step < 0.8:
            for _ in range(chance.choice([1, 1, 12])):
                await scene.plain_entry()
            await scene.log.end.refresh()
        elif step < 0.9:
            await scene.log.close()
            scene.topic.roll_over()
            await scene.lead()
        elif step < 0.93:
            await scene.log.close()
            whole, end = reference(scene)
            scene.trim(chance.randint(0, 6), whole.last_stable_offset(end))
            await scene.lead()
        else:
            await follower.close()
            follower = await scene.opened()
        start = scene.log.start.offset
        if chance.random() < 0.3:
            await agrees(scene, scene.log, [chance.randint(start, scene.log.end_offset)])
        if chance.random() < 0.2:
            offset = chance.randint(max(start, follower.start.offset), scene.log.end_offset)
            await agrees(scene, follower, [offset])
    fresh = await scene.opened()
    await agrees(scene, fresh, [*range(fresh.end_offset, fresh.start.offset - 1, -3)])


async def test_a_long_log_is_not_read_again(no_settling: None) -> None:
    scene = TransactionScene()
    await scene.lead()
    await scene.begin(9)
    for number in range(100):
        await scene.begin(1)
        await scene.end(1, ABORT if number % 10 == 0 else COMMIT)
    fresh = await scene.opened()
    scene.topic.readers.clear()
    await fresh.transactions.prepare()
    assert fresh.transactions.last_stable_offset == 0
    assert min(reader.first_entry for reader in scene.topic.readers) > len(scene.topic.entries) - 20
    await known(fresh, 0)
    assert len(fresh.transactions.aborted_between(0, fresh.end_offset)) == 10


async def test_a_caller_in_the_turn_in_which_a_load_ends_has_its_own(
    no_settling: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load has ended, callbacks of its task have not run yet, and it was for another offset."""
    scene = TransactionScene()
    await scene.plain_entry()
    await scene.lead()
    for _ in range(12):
        await scene.begin(7)
        await scene.end(7, ABORT)
    transactions = (await scene.opened()).transactions
    load, read = transactions._load_present, asyncio.get_running_loop().create_future()

    async def load_later() -> None:
        await load()
        await read

    monkeypatch.setattr(transactions, "_load_present", load_later)
    first = asyncio.create_task(transactions.prepare())
    async with asyncio.timeout(5):
        while not transactions.loaded:
            await asyncio.sleep(0.01)
    assert not transactions.knows(0)
    read.set_result(None)  # the load continues in the next turn
    second = asyncio.create_task(transactions.prepare_to_read(0))
    await asyncio.wait_for(second, 5)
    assert transactions.knows(0)
    await first


async def test_below_a_long_native_tail(no_settling: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_transactions, "KEPT_EVERY", 4)
    scene = TransactionScene()
    await scene.lead()
    for _ in range(40):
        await scene.begin(1)
        await scene.end(1, ABORT)
    await scene.begin(1)
    tail = len(scene.topic.entries)
    for _ in range(200):
        await scene.plain_entry()
    fresh = await scene.opened()
    scene.topic.readers.clear()
    await fresh.transactions.prepare()
    assert fresh.transactions.last_stable_offset == 80
    assert min(reader.first_entry for reader in scene.topic.readers) > tail - 30
    await known(fresh, 0)
    assert len(fresh.transactions.aborted_between(0, fresh.end_offset)) == 40


async def test_a_short_log_with_a_native_tail(no_settling: None) -> None:
    """Shorter than the number of entries that are searched for a checkpoint."""
    scene = TransactionScene()
    await scene.lead()
    await scene.begin(1)
    await scene.plain_entry()
    found = await find_last(shared_on(scene.topic).resources, "topic", scene.topic.last)
    assert found is not None
    assert found[0] == scene.topic.entries[0][0]


async def test_aborted_ones_without_checkpoint_are_kept(no_settling: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while Pulsar answers slowly, or after a long native tail."""
    monkeypatch.setattr(log_prefix, "MAX_ABORTED", 6)
    monkeypatch.setattr(log_prefix, "KEPT_ABORTED", 3)
    monkeypatch.setattr(checkpoints, "EVERY_ENTRIES", 1_000)
    monkeypatch.setattr(checkpoints, "EVERY_ABORTED", 1_000)
    scene = TransactionScene()
    await scene.lead()
    for _ in range(20):
        await scene.begin(1)
        await scene.end(1, ABORT)
    for log in (scene.log, await scene.opened()):
        await known(log, 0)
        assert len(log.transactions.aborted_between(0, log.end_offset)) == 20


async def test_a_late_marker_is_known_by_the_next_leader(no_settling: None) -> None:
    scene = TransactionScene()
    await scene.lead()
    await scene.begin(1)
    await scene.end(1, COMMIT, coordinator_epoch=7)
    for _ in range(6):
        await scene.begin(2)
        await scene.end(2, COMMIT)
    await scene.lead()
    await scene.begin(1)
    with pytest.raises(KafkaError) as error:
        await scene.end(1, ABORT, coordinator_epoch=6)
    assert error.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED


async def test_more_is_aborted_than_one_entry_can_tell(no_settling: None) -> None:
    """As after another cluster has written the log."""
    aborted = [
        bytes(part)
        for producer_id in range(500)
        for part in (transactional(producer_id, 0), encode_marker(TransactionMarker(ABORT, producer_id, 0, 0), 1))
    ]
    scene = TransactionScene()
    for _ in range(60):
        scene.topic.write(b"".join(aborted), len(aborted), "another", 0)
        scene.everything.append((b"".join(aborted), scene.topic.next_index - len(aborted)))
    scene.topic.properties[transaction_flag.PROPERTY] = "-1:-1"
    await scene.lead()
    for _ in range(12):
        await scene.begin(1_000)
        await scene.end(1_000, COMMIT)
    lengths = [len(each.value) for *_, metadata in scene.topic.entries for each in metadata.properties]
    assert max(lengths) < 300_000
    fresh = await scene.opened()
    scene.topic.readers.clear()
    await fresh.transactions.prepare()
    assert min(reader.first_entry for reader in scene.topic.readers) > 60
    await known(fresh, 0)
    found = await fresh.transactions.read_aborted(0, fresh.end_offset)
    assert len(found) == 30_000
    assert await scene.log.transactions.read_aborted(0, fresh.end_offset) == found


async def test_large_checkpoints_are_decoded_in_threads(no_settling: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower needs only the place of one that it has read. Here all are large."""
    threads: list[str] = []

    def decode(text: str) -> Checkpoint:
        threads.append(threading.current_thread().name)
        return decode_checkpoint(text)

    monkeypatch.setattr(checkpoints, "LARGE_CHARACTERS", 0)
    monkeypatch.setattr(checkpoints, "decode_checkpoint", decode)
    scene = TransactionScene()
    await scene.lead()
    await scene.begin(9)
    await scene.begin(1)
    follower = await scene.opened()
    await agrees(scene, follower, [0])
    threads.clear()
    for _ in range(10):
        await scene.end(1, ABORT)
        await scene.begin(1)
    await agrees(scene, follower, [0])
    newest = follower.transactions.prefix.checkpoints.newest
    assert newest == scene.log.transactions.prefix.checkpoints.newest is not None
    assert not threads
    fresh = await scene.opened()
    await agrees(scene, fresh, [0])
    assert fresh.transactions.prefix.checkpoints.newest is not None
    assert threads
    assert all(name.startswith("decoding") for name in threads)


async def test_checkpoints_of_native_producers(no_settling: None) -> None:
    scene = TransactionScene()
    await scene.lead()
    await scene.begin(1)
    await scene.end(1, ABORT)
    await scene.begin(2)
    for key, value in ((CHECKPOINT, b"nonsense"), ("kafka.checkpoint.at", b"3:0")):
        await scene.plain_entry()
        del scene.topic.entries[0][3].properties[1:]
        scene.topic.entries[-1][3].properties.add(key=key.encode(), value=value)
        fresh = await scene.opened()
        assert await decided(fresh) == (2, [(1, 0)])


async def test_a_native_checkpoint_that_follows_itself(no_settling: None) -> None:
    """Its log was read for ever, and no reader of committed records got an answer."""
    scene = TransactionScene()
    await scene.lead()
    await scene.begin(1)
    await scene.end(1, ABORT)
    await scene.plain_entry()
    position, behind = scene.topic.last, scene.topic.entries[-2][0]
    forged = encode_checkpoint(Checkpoint(behind, 2, {}, aborted_from=2, before=position))
    scene.topic.entries[-1][3].properties.add(key=CHECKPOINT.encode(), value=forged.encode())
    fresh = await scene.opened()
    await fresh.end.refresh()
    await known(fresh, 0)
    assert await decided(fresh) == (3, [(1, 0)])


async def test_another_clusters_checkpoint(no_settling: None) -> None:
    scene = TransactionScene()
    await scene.lead()
    await scene.begin(1)
    await scene.begin(2)
    for *_, metadata in scene.topic.entries:
        metadata.replicated_from = "elsewhere"
    fresh = await scene.opened()
    assert await decided(fresh) == (0, [])
    assert scene.topic.last > Position(3, 0)


async def test_what_was_aborted_long_ago_is_read_while_the_log_grows(
    no_settling: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each new transaction removed older ones from memory again: their reader never got an answer."""
    monkeypatch.setattr(log_prefix, "MAX_ABORTED", 6)
    monkeypatch.setattr(log_prefix, "KEPT_ABORTED", 3)
    monkeypatch.setattr(past_aborted, "MAX_ABORTED", 10)
    scene = TransactionScene()
    await scene.lead()
    for _ in range(60):
        await scene.begin(1)
        await scene.end(1, ABORT)
    transactions, read = scene.log.transactions, checkpoints.read_checkpoint

    async def and_another(*where: Any, **how: Any) -> Checkpoint | None:
        found = await read(*where, **how)
        await scene.begin(2)
        await scene.end(2, COMMIT)
        return found

    monkeypatch.setattr(log_transactions, "read_checkpoint", and_another)
    scene.topic.readers.clear()
    offset, aborted = 0, set()
    while offset < 120:
        await asyncio.wait_for(transactions.prepare_to_read(offset), 5)
        end = min(transactions.known_to(offset), 120)
        assert end > offset
        aborted |= {*transactions.aborted_between(offset, end)}
        offset = end
    assert {each.first_offset for each in aborted} == {*range(0, 120, 2)}
    assert len(scene.topic.readers) < 100, "each checkpoint is read a few times"


async def test_open_transactions_keep_their_producers_although_these_are_read_first(no_settling: None) -> None:
    """Otherwise a batch that is repeated after a takeover would be written twice."""
    scene = TransactionScene()
    await scene.lead()
    for producer_id in (1, 2, 3, 4):
        await scene.begin(producer_id)
    await scene.end(2, COMMIT)
    await scene.begin(5)
    scene.limits = Limits(max_producers_per_partition=2)
    await scene.lead()
    await scene.log.producers.load()
    assert not scene.log.transactions.loaded
    assert [each in scene.log.producers.state for each in range(1, 6)] == [True, False, True, True, True]


async def test_what_is_written_behind_a_marker_of_brokers_while_a_log_is_read(no_settling: None) -> None:
    """Readers get the next entry instead of the marker. It is not a part of what the log has read."""
    scene = TransactionScene()
    await scene.lead()
    await scene.begin(1)
    scene.topic.write_marker()
    opened = await scene.opened()
    await scene.end(1, ABORT)
    assert await decided(opened) == (0, [])
    assert opened.transactions.open.keys() == {1}
    await opened.end.refresh()
    assert await decided(opened) == (3, [(1, 0)])
    for each in (opened, scene.log):
        await each.close()
