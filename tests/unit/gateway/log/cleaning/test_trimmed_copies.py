"""A log of copies that Pulsar has compacted by itself, and whose first raw entries retention has deleted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.log.bounds.log_bounds import read_bounds
from gateway.log.partition_log import PartitionLog
from tests.unit.gateway.log.cleaning.test_cleaned_logs import compacted_away, scene_with_transactions
from tests.unit.gateway.log.fake_pulsar import FakeReader, FakeTopic
from tests.unit.gateway.log.transactions.transaction_scene import decided, shared_on


@pytest.mark.xfail(
    reason="the raw log is read, which has no markers of what only the compacted entries hold", strict=True
)
async def test_aborted_records_of_which_only_compacted_entries_are_left(
    no_settling: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = await scene_with_transactions()
    compacted_away(scene, 0)
    for *_, metadata in scene.topic.entries:
        metadata.replicated_from = "another"
    open_reader = FakeTopic.open_reader

    async def without_first(topic: FakeTopic, *arguments: Any, **options: Any) -> FakeReader:
        reader = await open_reader(topic, *arguments, **options)
        if not reader.read_compacted:
            reader.next_entry = max(reader.next_entry, 5)
        return reader

    monkeypatch.setattr(FakeTopic, "open_reader", without_first)
    shared = shared_on(scene.topic)
    bounds = await read_bounds(shared.resources.client, shared.resources.admin, "topic")
    log = PartitionLog("topic", shared, bounds, lambda: True)
    async with asyncio.timeout(5):
        await log.transactions.prepare_to_read(0)
        assert await decided(log) == (6, [(2, 2), (1, 4)])
    await log.close()
