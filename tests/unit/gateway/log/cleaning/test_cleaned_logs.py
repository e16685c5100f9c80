"""A log whose markers were compacted away: a new leader's knowledge of its transactions."""

from __future__ import annotations

import asyncio

import pytest

from gateway.log.bounds.log_bounds import LogBounds, read_bounds
from gateway.log.bounds.transaction_flag import flagged_position
from gateway.log.partition_log import PartitionLog
from gateway.log.transactions import checkpoints
from gateway.log.transactions.aborted_list import AbortedTransaction
from gateway.log.transactions.checkpoint import Checkpoint
from gateway.log.transactions.cleaned import PREFIX, cleaned_places, read_cleaned, write_cleaned
from gateway.pulsar.position import Position
from protocol.kafka.transaction_marker import MarkerType
from tests.unit.gateway.log.fake_pulsar import FakeReader
from tests.unit.gateway.log.transactions.transaction_scene import TransactionScene, decided, shared_on

ABORT, COMMIT = MarkerType.ABORT, MarkerType.COMMIT


async def scene_with_transactions() -> TransactionScene:
    """Producer 1 commits at 0 and 1, 2 aborts at 2 and 3, 1 aborts at 4 and 5, 3 is open from 6."""
    scene = TransactionScene()
    scene.compacted = True
    await scene.lead()
    for producer_id, kind in ((1, COMMIT), (2, ABORT), (1, ABORT)):
        await scene.begin(producer_id)
        await scene.end(producer_id, kind)
    await scene.begin(3)
    return scene


def compacted_away(scene: TransactionScene, *offsets: int) -> None:
    scene.topic.compacted_away |= {scene.topic.entries[offset][0] for offset in offsets}
    scene.topic.compacted_ledger_id = 1


@pytest.mark.parametrize("gone", [(1, 3), (0, 1, 2, 3), (0, 3)])
async def test_markers_are_not_needed(gone: tuple[int, ...], no_settling: None) -> None:
    """Without the earlier entries, producer 1 would have aborted from 0, or would be open."""
    scene = await scene_with_transactions()
    position = scene.topic.entries[3][0]
    fact = Checkpoint(position, 4, {}, (AbortedTransaction(2, 2, 3, 0),))
    await write_cleaned(shared_on(scene.topic).resources, "topic", fact)
    compacted_away(scene, *gone)
    log = await scene.opened()
    async with asyncio.timeout(5):
        await log.transactions.prepare_to_read(0)
        assert await decided(log) == (6, [(2, 2), (1, 4)])


async def test_what_is_cleaned_while_it_is_read_is_not_taken_for_open(no_settling: None) -> None:
    """The markers are removed after the place of cleaning was read, and before the log is read."""
    scene = await scene_with_transactions()
    shared = shared_on(scene.topic)
    await write_cleaned(shared.resources, "topic", Checkpoint(scene.topic.entries[0][0], 1, {}))
    log = await scene.opened()
    looked = scene.topic.managed_ledger_properties

    async def then_cleaned(topic: str) -> dict[str, str]:
        scene.topic.managed_ledger_properties = looked  # type: ignore[method-assign]
        found = dict(await looked(topic))
        await write_cleaned(shared.resources, "topic", Checkpoint(scene.topic.entries[5][0], 6, {}))
        compacted_away(scene, 1, 2, 3, 5)
        return found

    scene.topic.managed_ledger_properties = then_cleaned  # type: ignore[method-assign]
    async with asyncio.timeout(5):
        await log.transactions.prepare_to_read(0)
        assert await decided(log) == (6, [])
    assert list(log.transactions.open) == [3]


async def with_compacted_entries_only(scene: TransactionScene) -> PartitionLog:
    """The log was cleaned up to offset 2. Then retention has deleted what compaction has copied: no last entry."""
    shared = shared_on(scene.topic)
    await write_cleaned(shared.resources, "topic", Checkpoint(scene.topic.entries[1][0], 2, {}))
    compacted_away(scene, 0, 1)
    bounds = LogBounds(Position(-1, -1), scene.topic.next_index, 0, flag=flagged_position(scene.topic.properties))
    return PartitionLog("topic", shared, bounds, lambda: True)


async def test_retention_has_left_compacted_entries_only(no_settling: None) -> None:
    log = await with_compacted_entries_only(await scene_with_transactions())
    async with asyncio.timeout(5):
        await log.transactions.prepare_to_read(0)
        assert await decided(log) == (6, [(2, 2), (1, 4)])
    assert list(log.transactions.open) == [3]


async def test_an_entry_is_written_while_compacted_ones_are_read(no_settling: None) -> None:
    scene = await scene_with_transactions()
    log = await with_compacted_entries_only(scene)
    await scene.end(3, ABORT)  # readers of the compacted log get it, too
    async with asyncio.timeout(5):
        await log.transactions.prepare_to_read(0)
        assert await decided(log) == (6, [(2, 2), (1, 4)])


async def test_compacted_entries_are_cleaned_while_they_are_read(no_settling: None) -> None:
    """Without the markers, what was committed would seem to be open."""
    scene = await scene_with_transactions()
    log = await with_compacted_entries_only(scene)
    looked = scene.topic.managed_ledger_properties

    async def then_cleaned(topic: str) -> dict[str, str]:
        scene.topic.managed_ledger_properties = looked  # type: ignore[method-assign]
        found = dict(await looked(topic))
        shared = shared_on(scene.topic)
        await write_cleaned(shared.resources, "topic", Checkpoint(scene.topic.entries[5][0], 6, {}))
        compacted_away(scene, 2, 3, 5)
        return found

    scene.topic.managed_ledger_properties = then_cleaned  # type: ignore[method-assign]
    async with asyncio.timeout(5):
        await log.transactions.prepare_to_read(0)
        assert await decided(log) == (6, [])
    assert list(log.transactions.open) == [3]


async def test_truncation_has_deleted_a_commit_marker(no_settling: None) -> None:
    """What the transaction has written stays readable."""
    scene = await scene_with_transactions()
    await scene.end(3, COMMIT)
    log = await with_compacted_entries_only(scene)
    compacted_away(scene, 7)
    async with asyncio.timeout(5):
        await log.transactions.prepare_to_read(0)
        assert await decided(log) == (8, [(2, 2), (1, 4)])


def test_a_property_that_somebody_has_written_is_passed_over() -> None:
    assert cleaned_places({}) == []
    assert cleaned_places({PREFIX + "7": "nonsense"}) == []


async def test_a_former_leader_that_writes_late_takes_nothing_back(no_settling: None) -> None:
    scene = await scene_with_transactions()
    resources = shared_on(scene.topic).resources
    for offset, farthest in ((2, 2), (4, 4), (6, 6), (4, 6)):
        await write_cleaned(resources, "topic", Checkpoint(scene.topic.entries[offset - 1][0], offset, {}))
        found = await read_cleaned(resources, "topic")
        assert found.place is not None
        assert found.place.offset == farthest
    await write_cleaned(resources, "topic", Checkpoint(scene.topic.entries[6][0], 7, {}))
    assert [key for key in scene.topic.properties if key.startswith(PREFIX)] == [PREFIX + "7"]


async def test_checkpoints_go_while_they_are_looked_for(no_settling: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway knows the newest one, and searches for earlier aborted transactions: the property has them."""
    monkeypatch.setattr(checkpoints, "EVERY_ENTRIES", 2)
    scene = await scene_with_transactions()
    for _ in range(4):
        await scene.begin(3)
    log = await scene.opened()
    await log.transactions.prepare()
    assert not log.transactions.knows(0)
    looked = scene.topic.managed_ledger_properties
    aborted = AbortedTransaction(2, 2, 3, 0), AbortedTransaction(1, 4, 5, 0)

    async def then_cleaned(topic: str) -> dict[str, str]:
        scene.topic.managed_ledger_properties = looked  # type: ignore[method-assign]
        found = dict(await looked(topic))
        fact = Checkpoint(scene.topic.entries[5][0], 6, {}, aborted)
        await write_cleaned(shared_on(scene.topic).resources, "topic", fact)
        scene.trim(6, before=6)
        return found

    scene.topic.managed_ledger_properties = then_cleaned  # type: ignore[method-assign]
    async with asyncio.timeout(5):
        await log.transactions.prepare_to_read(0)
        assert await decided(log) == (6, [(2, 2), (1, 4)])


async def test_a_topic_that_is_not_compacted_any_more_is_read_whole_again(no_settling: None) -> None:
    """Readers get aborted records that compaction had removed: neither property nor checkpoint has them."""
    scene = await scene_with_transactions()
    resources = shared_on(scene.topic).resources
    await write_cleaned(resources, "topic", Checkpoint(scene.topic.entries[5][0], 6, {}))
    compacted_away(scene, 0, 1, 2, 3, 4, 5)
    await scene.lead()
    async with asyncio.timeout(5):
        await scene.log.transactions.prepare_to_read(0)
        assert await decided(scene.log) == (6, [])
        await scene.begin(3)
        assert scene.log.reader.read(7, 1 << 20) is not None
        for log in (scene.log, await scene.opened()):
            for compacted, aborted in ((False, [(2, 2), (1, 4)]), (True, [])):
                scene.compacted = compacted
                await log.transactions.prepare_to_read(0)
                assert log.reader.read(7, 1 << 20) is None, "what was read before is read again"
                assert await decided(log) == (6, aborted)
                assert list(log.transactions.open) == [3]


async def test_a_topic_that_was_not_compacted_for_a_while_unseen(no_settling: None) -> None:
    """The same: the compacted log is lost, and the property says so, but nobody reads that for each fetch."""
    scene = await scene_with_transactions()
    cleaned, resources = scene.topic.entries[5][0], shared_on(scene.topic).resources
    await write_cleaned(resources, "topic", Checkpoint(cleaned, 6, {}, before=cleaned))
    compacted_away(scene, 0, 1, 2, 3, 4, 5)
    await scene.lead()
    async with asyncio.timeout(5):
        await scene.log.transactions.prepare_to_read(0)
        assert await decided(scene.log) == (6, [])
        scene.topic.compacted_away.clear()
        scene.compacted = 2
        await scene.log.transactions.prepare_to_read(0)
        assert await decided(scene.log) == (6, [(2, 2), (1, 4)])


async def test_readers_begin_anew_when_aborted_records_in_memory_are_no_longer_named(no_settling: None) -> None:
    scene = TransactionScene()
    scene.compacted = True
    await scene.lead()
    await scene.begin(1)
    other = await scene.opened()
    await scene.begin(1)
    await scene.end(1, ABORT)
    await other.end.refresh()
    await other.transactions.prepare_to_read(0)
    assert other.reader.read(1, 1 << 20) is not None
    scene.topic.delivers = False
    await scene.begin(2)
    last = scene.topic.entries[-1][0]
    await write_cleaned(shared_on(scene.topic).resources, "topic", Checkpoint(last, 4, {}))
    other.transactions.appended(last, 4, 5, None)  # entries before it were not read
    async with asyncio.timeout(5):
        await other.transactions.prepare_to_read(0)
    assert await decided(other) == (3, [])
    assert other.reader.read(1, 1 << 20) is None
    await other.close()


@pytest.mark.parametrize("flagged", [True, False])
async def test_compacted_entries_that_no_gateway_has_cleaned(no_settling: None, *, flagged: bool) -> None:
    """In a cluster that gets copies only, Pulsar compacts by itself, and retention deletes the rest."""
    scene = await scene_with_transactions()
    compacted_away(scene, 0)
    for *_, metadata in scene.topic.entries:
        metadata.replicated_from = "another"
    if not flagged:
        scene.topic.properties = {}
    scene.topic.properties["index"] = str(scene.topic.next_index - 1)
    shared, topic = shared_on(scene.topic), scene.topic
    last_position = FakeReader.last_position

    async def gone(reader: FakeReader) -> Position:
        return await last_position(reader) if reader.read_compacted else Position(topic.ledger_id + 1, -1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeReader, "last_position", gone)
        bounds = await read_bounds(shared.resources.client, shared.resources.admin, "topic")
        log = PartitionLog("topic", shared, bounds, lambda: True)
        async with asyncio.timeout(5):
            await log.transactions.prepare_to_read(0)
            assert await decided(log) == (6, [(2, 2), (1, 4)])
        await log.close()
