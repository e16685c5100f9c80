"""A log of copies that Pulsar has compacted by itself, and whose first raw entries retention has deleted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.log.bounds.log_bounds import read_bounds
from gateway.log.partition_log import PartitionLog
from gateway.log.transactions import log_prefix, scan
from gateway.pulsar.errors import ConnectionLostError
from protocol.kafka.transaction_marker import MarkerType
from tests.unit.gateway.log.cleaning.test_cleaned_logs import compacted_away, scene_with_transactions
from tests.unit.gateway.log.fake_pulsar import FakeReader, FakeTopic
from tests.unit.gateway.log.transactions.transaction_scene import TransactionScene, decided, shared_on

pytestmark = pytest.mark.usefixtures("no_settling")


async def trimmed_copies(
    scene: TransactionScene, monkeypatch: pytest.MonkeyPatch, *, compacted: tuple[int, ...], first: int
) -> PartitionLog:
    """The log of another gateway. Of the entries before ``first``, only those are left that are not compacted away."""
    compacted_away(scene, *compacted)
    for *_, metadata in scene.topic.entries:
        metadata.replicated_from = "another"
    open_reader = FakeTopic.open_reader

    async def without_first(topic: FakeTopic, *arguments: Any, **options: Any) -> FakeReader:
        reader = await open_reader(topic, *arguments, **options)
        if not reader.read_compacted:
            reader.next_entry = max(reader.next_entry, first)
        return reader

    monkeypatch.setattr(FakeTopic, "open_reader", without_first)
    shared = shared_on(scene.topic)
    bounds = await read_bounds(shared.resources.client, shared.resources.admin, "topic")
    return PartitionLog("topic", shared, bounds, lambda: True)


async def load(log: PartitionLog) -> None:
    async with asyncio.timeout(5):
        await log.transactions.prepare_to_read(0)


async def test_aborted_records_of_which_only_compacted_entries_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    log = await trimmed_copies(await scene_with_transactions(), monkeypatch, compacted=(0,), first=5)
    await load(log)
    assert await decided(log) == (6, [(2, 2), (1, 4)])
    assert [*log.transactions.open] == [3]
    await log.close()


@pytest.mark.parametrize("first", [2, 4, 5, 6])
async def test_a_commit_whose_marker_was_compacted_away(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    """Another cluster has removed the marker. The record at 0 would count as open for ever, or as aborted at 5."""
    log = await trimmed_copies(await scene_with_transactions(), monkeypatch, compacted=(1, 2, 3, 4, 5), first=first)
    await load(log)
    assert [*log.transactions.open] == [3]
    assert all(first_offset > 0 for _, first_offset in (await decided(log))[1])
    await log.close()


@pytest.mark.parametrize("kind", [MarkerType.COMMIT, MarkerType.ABORT])
async def test_a_transaction_of_which_more_follows(monkeypatch: pytest.MonkeyPatch, kind: MarkerType) -> None:
    """Nothing is missing in between."""
    scene = await scene_with_transactions()
    await scene.begin(4)
    await scene.begin(3)
    await scene.end(3, kind)
    log = await trimmed_copies(scene, monkeypatch, compacted=(1, 3), first=8)
    await load(log)
    assert [*log.transactions.open] == [4]
    await scene.end(4, kind)
    await load(log)
    _, aborted = await decided(log)
    assert ((3, 6) in aborted) == (kind is MarkerType.ABORT)
    await log.close()


async def test_a_reader_is_lost_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read is not read again."""
    log = await trimmed_copies(await scene_with_transactions(), monkeypatch, compacted=(0,), first=5)
    failures = [True, True]

    async def failing(*arguments: Any, compacted: bool = False) -> Any:
        async for entry in scan.scan_events(*arguments, compacted=compacted):
            yield entry
            if failures and (compacted or len(failures) == 1):
                failures.pop()
                raise ConnectionLostError("lost")

    monkeypatch.setattr(log_prefix, "scan_events", failing)
    for _ in range(2):
        with pytest.raises(ConnectionLostError):
            await load(log)
    await load(log)
    assert await decided(log) == (6, [(2, 2), (1, 4)])
    await log.close()
