"""min.compaction.lag.ms with the real cleaner: what was too young is cleaned later, though nobody writes any more."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock
from uuid import UUID

import pytest

from gateway.coordination.transactions import cleaning
from gateway.coordination.transactions.cleaning import Cleaning
from gateway.log.cleaning import cleaner
from gateway.log.registry import LogRegistry
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.topics import InternalStats
from gateway.topics.topic import Topic
from protocol.kafka.transaction_marker import MarkerType
from tests.unit.gateway.coordination.transactions.fake_fleet import FakeFleet
from tests.unit.gateway.log.cleaning.compacting_topic import CleanedScene, CompactingTopic

ENTRY_BYTES, LAG_S = 1_000, 60
CONFIGS = {
    "cleanup.policy": "compact", "segment.bytes": "5000", "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": f"{LAG_S}000",
}  # fmt: skip


class SizedTopic(CompactingTopic):
    async def internal_stats(self, topic: str) -> InternalStats:
        found = await super().internal_stats(topic)
        ledgers = [ledger._replace(size_bytes=ledger.entries * ENTRY_BYTES) for ledger in found.ledgers]
        left = len(self.entries) - len(self.compacted_away) if self.compacted_ledger_id >= 0 else 0
        compacted = found.compacted_ledger._replace(size_bytes=left * ENTRY_BYTES)
        return InternalStats(
            tuple(ledgers), found.last_confirmed, found.pending_adds, found.entries_added, found.cursors, compacted
        )


class Clock:
    """All clocks of a cleaning."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1_000.0
        monkeypatch.setattr(cleaning, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(cleaner, "_now_ms", lambda: int(self.now_s * 1_000))
        monkeypatch.setattr(cleaner, "ASK_S", 0)


def cleaning_of(scene: CleanedScene) -> Cleaning:
    topic = Topic(
        "t", "t", UUID(int=1), 1, True, CONFIGS, 0.0, messages_only=True, has_transactions=True,
        has_compaction_keys=True,
    )  # fmt: skip
    logs = SimpleNamespace(
        all_open=lambda: [(("t", 0), scene.log)], shared=SimpleNamespace(resources=scene.log.resources)
    )
    return Cleaning(cast(Any, FakeFleet()), cast(LogRegistry, logs), lambda _: topic, AsyncMock(), Metrics())


async def checked(scene: CleanedScene, found: Cleaning) -> None:
    running = asyncio.create_task(found.check())
    while not running.done():
        await scene.write()
        await asyncio.sleep(0)
    await running


async def puts(scene: CleanedScene, count: int, clock: Clock) -> None:
    for _ in range(count):
        await scene.put(1, b"k")
        await scene.end(1, MarkerType.COMMIT)
        for *_, metadata in scene.topic.entries[-2:]:
            metadata.publish_time = int(clock.now_s * 1_000)


def left(scene: CleanedScene) -> int:
    return len(scene.topic.entries) - len(scene.topic.compacted_away)


@pytest.mark.parametrize("leads_anew", [False, True])
async def test_what_was_too_young_is_cleaned_later(
    no_settling: None, monkeypatch: pytest.MonkeyPatch, *, leads_anew: bool
) -> None:
    clock, scene = Clock(monkeypatch), CleanedScene()
    scene.topic = SizedTopic()
    await scene.lead()
    found = cleaning_of(scene)
    await puts(scene, 10, clock)
    clock.now_s += LAG_S + 1
    await puts(scene, 10, clock)
    await checked(scene, found)
    assert 20 <= left(scene) < 30, "the young ones, and one of the others"
    if leads_anew:
        await scene.lead()
        found = cleaning_of(scene)
    clock.now_s += LAG_S - 1
    await checked(scene, found)
    assert left(scene) >= 20
    clock.now_s += LAG_S if leads_anew else 2  # a new leader counts from its first look
    await checked(scene, found)
    assert left(scene) < 5
