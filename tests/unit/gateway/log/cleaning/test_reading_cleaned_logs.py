"""Consumers of a compacted log: each reads as far as it may, whatever is missing."""

from __future__ import annotations

import asyncio
import random

import pytest

from gateway.fetching.committed_records import committed_records
from gateway.log.partition_log import PartitionLog
from protocol.kafka.batch import iter_headers
from protocol.kafka.transaction_marker import MarkerType
from tests.support.records import decode_records
from tests.unit.gateway.log.cleaning.compacting_topic import MAX_BYTES, CleanedScene

ABORT, COMMIT = MarkerType.ABORT, MarkerType.COMMIT


async def consumed(log: PartitionLog, *, committed: bool, max_bytes: int = MAX_BYTES) -> dict[bytes, bytes]:
    """The final values of a consumer that begins at the start, and continues after the last batch of each response."""
    await log.transactions.prepare_to_read(0)
    found: dict[bytes, bytes | None] = {}
    at, end = 0, log.transactions.last_stable_offset if committed else log.end_offset
    async with asyncio.timeout(5):
        while at < end:
            slice_ = log.reader.read(at, max_bytes, before=end)
            if slice_ is None:
                log.reader.prefetch(at)
                await asyncio.sleep(0)
                continue
            aborted = log.transactions.aborted_between(at, slice_.next_offset) if committed else []
            before = at
            for part in committed_records(slice_.chunks, aborted):
                for position, header in iter_headers(part):
                    at = header.last_offset + 1
                    if not header.is_control:
                        for record in decode_records(part, position, header, MAX_BYTES):
                            assert record.key is not None
                            found[record.key] = record.value
            assert before < at == slice_.next_offset
    assert at == end
    return {key: value for key, value in found.items() if value is not None}


async def newly_opened(scene: CleanedScene) -> PartitionLog:
    """No entry is in memory."""
    await scene.lead()
    return scene.log


@pytest.mark.parametrize("max_bytes", [1, MAX_BYTES])
async def test_what_is_gone_just_before_an_open_transaction(max_bytes: int, no_settling: None) -> None:
    scene = CleanedScene()
    await scene.lead()
    await scene.put(1, b"k")
    await scene.end(1, COMMIT)
    await scene.put(1, b"lost")
    await scene.end(1, ABORT)
    await scene.put(2, b"k")
    await scene.clean()
    log = await newly_opened(scene)
    stable = log.transactions.last_stable_offset if log.transactions.loaded else 4
    position = scene.topic.entries[stable - 1][0]
    assert position in scene.topic.compacted_away
    assert await consumed(log, committed=True, max_bytes=max_bytes) == {b"k": b"0"}
    assert await consumed(log, committed=False, max_bytes=max_bytes) == {b"k": b"2"}


async def test_what_is_gone_in_the_middle_and_at_the_end(no_settling: None) -> None:
    scene = CleanedScene()
    await scene.lead()
    for number in range(6):
        await scene.put(1, b"k%d" % (number % 2))
        await scene.end(1, ABORT if number == 5 else COMMIT)
    await scene.clean()
    log = await newly_opened(scene)
    assert await consumed(log, committed=True) == await consumed(log, committed=False) == scene.newest


async def test_everything_is_gone_before_an_open_transaction(no_settling: None) -> None:
    scene = CleanedScene()
    await scene.lead()
    await scene.put(1, b"k", delete=True)
    await scene.end(1, COMMIT)
    await scene.put(2, b"k")
    await scene.clean()
    await scene.clean()  # the second cleaning removes the deletion
    assert {each[0] for each in scene.topic.entries[:2]} <= scene.topic.compacted_away
    assert await consumed(await newly_opened(scene), committed=True) == {}
    await scene.end(2, COMMIT)
    assert await consumed(await newly_opened(scene), committed=True) == scene.newest != {}


@pytest.mark.parametrize("seed", range(20))
async def test_random_histories(seed: int, no_settling: None) -> None:
    chance = random.Random(seed)
    scene = CleanedScene()
    await scene.lead()
    for _ in range(40):
        producer_id, step = chance.randint(1, 3), chance.random()
        if step < 0.55:
            await scene.put(producer_id, b"k%d" % chance.randint(0, 3), delete=chance.random() < 0.2)
        elif step < 0.8 and any(each.producer_id == producer_id for each in scene.open):
            await scene.end(producer_id, chance.choice([ABORT, COMMIT]))
        elif step < 0.9:
            await scene.clean()
            assert await consumed(scene.log, committed=True) == scene.newest
        else:
            log = await newly_opened(scene)
            assert await consumed(log, committed=True, max_bytes=chance.choice([1, 200, MAX_BYTES])) == scene.newest
            await consumed(log, committed=False)
