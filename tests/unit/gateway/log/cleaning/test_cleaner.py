"""Cleaning logs with transactions, by Pulsar's compactor: leaders and readers see no difference except size."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from gateway.errors import KafkaError
from gateway.log.cleaning import cleaner, garbage, view
from gateway.log.cleaning.cleaner import Rules
from gateway.log.cleaning.garbage import SharedKeysError
from gateway.log.transactions import checkpoints
from gateway.pulsar.errors import ServiceNotReadyError
from protocol.kafka.transaction_marker import MarkerType
from tests.unit.gateway.log.cleaning.compacting_topic import CleanedScene, read

ABORT, COMMIT = MarkerType.ABORT, MarkerType.COMMIT


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "EVERY_ENTRIES", 5)
    monkeypatch.setattr(checkpoints, "EVERY_ABORTED", 2)
    monkeypatch.setattr(cleaner, "REMOVED_AT_ONCE", 3)


@pytest.mark.parametrize("seed", range(30))
async def test_random_histories(seed: int, no_settling: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaders change and crash, compactions fail, operators compact, and the log has only what compaction kept."""
    chance = random.Random(seed)
    if seed % 3 == 0:
        monkeypatch.setattr(garbage, "MAX_KEYS", 2)
    if seed % 5 == 0:
        monkeypatch.setattr(garbage, "MAX_REMOVED", 7)
    scene = CleanedScene()
    await scene.lead()
    async with asyncio.timeout(60):
        for _ in range(60):
            producer_id = chance.randint(1, 4)
            step = chance.random()
            if step < 0.55:
                await scene.put(producer_id, b"k%d" % chance.randint(0, 4), delete=chance.random() < 0.2)
            elif step < 0.8 and any(each.producer_id == producer_id for each in scene.open):
                await scene.end(producer_id, chance.choice([ABORT, COMMIT]))
            elif step < 0.9:
                scene.topic.fails = chance.random() < 0.3
                await scene.clean()
                assert await read(scene.log, scene.topic) == scene.newest
            elif step < 0.94:
                await scene.crash_while_cleaning(chance.randint(0, 4))
                await scene.lead()
                await scene.topic.compact("topic")  # by Pulsar's own tools
            elif step < 0.97:
                if chance.random() < 0.4:
                    scene.topic.lose_compacted()
                await scene.lead()
            else:
                assert await read(await scene.opened(), scene.topic) == scene.newest
        for producer_id in {each.producer_id for each in scene.open}:
            await scene.end(producer_id, chance.choice([ABORT, COMMIT]))
        assert await read(await scene.opened(), scene.topic) == scene.newest


async def with_aborted_ones_that_no_place_names() -> CleanedScene:
    scene = CleanedScene()
    await scene.lead()
    await scene.put(1, b"k")
    await scene.end(1, COMMIT)
    await scene.put(2, b"k")
    await scene.put(2, b"only aborted")
    await scene.end(2, ABORT)
    for _ in range(2):
        for _ in range(3):
            await scene.put(1, b"hot")
            await scene.end(1, COMMIT)
        await scene.clean()
    return scene


@pytest.mark.parametrize("stays_open", [False, True])
async def test_the_compacted_log_is_lost(no_settling: None, *, stays_open: bool) -> None:
    """Its topic was not compacted for a while. What was aborted is in the log again, and must not seem committed."""
    scene = await with_aborted_ones_that_no_place_names()
    scene.topic.lose_compacted()
    if not stays_open:
        await scene.lead()
        assert await read(scene.log, scene.topic) == scene.newest
    for _ in range(2):
        await scene.put(1, b"hot")
        await scene.end(1, COMMIT)
        await scene.clean()
        assert await read(scene.log, scene.topic) == scene.newest
        assert await read(await scene.opened(), scene.topic) == scene.newest
    assert len(scene.topic.entries) - len(scene.topic.compacted_away) == 2


async def test_the_compacted_log_is_lost_while_it_is_cleaned(
    no_settling: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = await with_aborted_ones_that_no_place_names()
    await scene.put(1, b"hot")
    await scene.end(1, COMMIT)

    async def after_loss(*arguments: Any) -> Any:
        scene.topic.lose_compacted()
        return await view.collect_garbage(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(cleaner, "collect_garbage", after_loss)
        with pytest.raises(ServiceNotReadyError):
            await scene.clean()
    await scene.clean()
    assert await read(scene.log, scene.topic) == scene.newest


async def test_deletions_that_are_there_again_count_from_then_on(
    no_settling: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer may have read what was removed, and is there again: it needs the deletion for as long as before."""
    now_ms = 1_000_000
    monkeypatch.setattr(cleaner, "_now_ms", lambda: now_ms)
    rules = Rules(deletions_kept_ms=1_000)
    scene = CleanedScene()
    await scene.lead()
    await scene.put(1, b"k")
    await scene.put(1, b"k", delete=True)
    for _ in range(2):
        await scene.put(1, b"hot")
        await scene.end(1, COMMIT)
        await scene.clean(rules)
    now_ms += 1_001
    scene.topic.lose_compacted()
    await scene.lead()
    deletion = scene.topic.entries[1][0]
    for goes in (False, True):
        for _ in range(2):
            await scene.put(1, b"hot")
            await scene.end(1, COMMIT)
            await scene.clean(rules)
        assert (deletion in scene.topic.compacted_away) is goes
        now_ms += 1_001


async def test_the_log_stays_small(no_settling: None) -> None:
    scene = CleanedScene()
    await scene.lead()
    for number in range(40):
        await scene.put(1, b"k%d" % (number % 3))
        await scene.end(1, ABORT if number % 4 == 0 else COMMIT)
        if number % 10 == 9:
            await scene.clean()
    assert await read(scene.log, scene.topic) == scene.newest
    assert len(scene.topic.entries) - len(scene.topic.compacted_away) == 3


async def test_a_log_of_which_nothing_is_left_is_opened(no_settling: None) -> None:
    scene = CleanedScene()
    await scene.lead()
    await scene.put(1, b"k")
    await scene.end(1, ABORT)
    await scene.clean()
    await scene.lead()
    await scene.topic.compact("topic")
    assert len(scene.topic.compacted_away) == len(scene.topic.entries)
    async with asyncio.timeout(5):
        await scene.lead()
        await scene.put(1, b"k")
        await scene.end(1, COMMIT)
        assert await read(await scene.opened(), scene.topic) == scene.newest != {}


async def test_an_open_transaction_keeps_what_lies_behind_its_first_record(no_settling: None) -> None:
    scene = CleanedScene()
    await scene.lead()
    await scene.put(1, b"k")
    await scene.end(1, COMMIT)
    await scene.put(2, b"k")
    for _ in range(3):
        await scene.put(1, b"other")
        await scene.end(1, COMMIT)
    await scene.clean()
    assert await read(scene.log, scene.topic) == scene.newest == {b"k": b"0"}
    await scene.lead()
    await scene.log.transactions.prepare()
    assert list(scene.log.transactions.open) == [2]
    await scene.end(2, COMMIT)
    await scene.clean()
    assert await read(scene.log, scene.topic) == scene.newest == {b"k": b"1", b"other": b"4"}


async def test_a_gateway_without_compaction_keys_has_written(no_settling: None) -> None:
    """Its open transaction must not replace a committed record: nothing is compacted."""
    scene = CleanedScene()
    await scene.lead()
    for _ in range(2):
        await scene.put(1, b"k")
        await scene.end(1, COMMIT)
    await scene.put(2, b"k", own_key=False)
    before = len(scene.topic.entries)
    with pytest.raises(SharedKeysError):
        await scene.clean()
    assert scene.topic.status == "NOT_RUN"
    assert len(scene.topic.entries) == before
    assert await read(scene.log, scene.topic) == scene.newest == {b"k": b"1"}


async def test_a_deletion_stays_until_consumers_of_what_it_deletes_have_reached_it(
    no_settling: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However old it is: the value before it could be read until the first cleaning (KIP-534)."""
    now_ms = 1_000_000
    monkeypatch.setattr(cleaner, "_now_ms", lambda: now_ms)
    scene = CleanedScene()
    await scene.lead()
    for delete in (False, True):
        await scene.put(1, b"k", delete=delete)
        await scene.end(1, COMMIT)
    deletion = scene.topic.entries[2][0]
    for pass_ms, is_there in ((0, True), (999, True), (1, False)):
        now_ms += pass_ms
        await scene.lead()
        await scene.clean(Rules(deletions_kept_ms=1_000))
        assert (deletion not in scene.topic.compacted_away) is is_there


async def test_what_is_young_stays(no_settling: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's min.compaction.lag.ms."""
    monkeypatch.setattr(cleaner, "_now_ms", lambda: 2_000)
    scene = CleanedScene()
    await scene.lead()
    for number in range(4):
        await scene.put(1, b"k")
        await scene.end(1, COMMIT)
        scene.topic.entries[-1][3].publish_time = scene.topic.entries[-2][3].publish_time = 500 * (number + 1)
    await scene.clean(Rules(lag_ms=600))
    await scene.clean(Rules(lag_ms=600))
    assert [index for position, index, *_ in scene.topic.entries if position not in scene.topic.compacted_away] == [
        2, 4, 5, 6, 7,
    ]  # fmt: skip


async def test_tombstones_are_not_written_again_while_pulsar_cannot_compact(no_settling: None) -> None:
    scene = CleanedScene()
    await scene.lead()
    for _ in range(10):
        await scene.put(1, b"k")
        await scene.end(1, COMMIT)
    scene.topic.fails = True
    await scene.clean()
    written = len(scene.topic.entries)
    for _ in range(3):
        await scene.clean()
    assert len(scene.topic.entries) == written
    scene.topic.fails = False
    await scene.clean()
    assert len(scene.topic.entries) == written
    assert await read(scene.log, scene.topic) == scene.newest == {b"k": b"9"}


@pytest.mark.parametrize("limit", ["MAX_ABORTED", "MAX_REMOVED"])
async def test_more_than_fits_into_memory_is_removed_in_several_passes(
    limit: str, no_settling: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, limit, 2)
    scene = CleanedScene()
    await scene.lead()
    for _ in range(9):
        await scene.put(1, b"k")
        await scene.end(1, ABORT)
    await scene.put(1, b"k")
    await scene.end(1, COMMIT)
    await scene.clean()
    assert len(scene.topic.entries) - len(scene.topic.compacted_away) == 1
    assert await read(await scene.opened(), scene.topic) == scene.newest == {b"k": b"9"}


@pytest.mark.parametrize("turns", range(0, 60, 4))
async def test_a_log_that_closes_ends_its_cleaning(turns: int, no_settling: None) -> None:
    """Otherwise no other log would be cleaned any more."""
    scene = CleanedScene()
    await scene.lead()
    for _ in range(10):
        await scene.put(1, b"k")
        await scene.end(1, COMMIT)
    cleaning = asyncio.create_task(cleaner.LogCleaner(scene.log).clean(Rules()))
    for _ in range(turns):
        await asyncio.sleep(0)
    assert not cleaning.done()
    await scene.log.close()
    async with asyncio.timeout(5):
        with pytest.raises(KafkaError):
            await cleaning
