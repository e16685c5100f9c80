"""A broker that has lost a topic to another one, and does not know it."""

from __future__ import annotations

from typing import cast

import pytest

from gateway.log.bounds import topic_owner
from gateway.log.bounds.topic_owner import as_owner
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.admin.topics import InternalStats, ManagedLedgerInfo
from gateway.pulsar.errors import ServiceNotReadyError
from tests.unit.gateway.log.fake_pulsar import FakeTopic
from tests.unit.gateway.log.log_scene import Scene

NEWER = 1_000


def stored(topic: FakeTopic, monkeypatch: pytest.MonkeyPatch, *ledgers: int) -> None:
    """The metadata store has these ledgers."""

    async def managed_ledger(name: str) -> ManagedLedgerInfo:
        return ManagedLedgerInfo(frozenset(ledgers), frozenset(), {})

    monkeypatch.setattr(topic, "managed_ledger", managed_ledger)


async def test_idempotent_producers_and_readers_beyond_the_end_get_an_error_that_passes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_owner, "ROLLOVER_S", 0)
    stored(scene.topic, monkeypatch, scene.topic.ledger_id, NEWER)
    with pytest.raises(ServiceNotReadyError):
        await scene.log.producers.load()
    with pytest.raises(ServiceNotReadyError):
        await scene.log.end.check_owner()
    monkeypatch.undo()
    await scene.log.producers.load()
    await scene.log.end.check_owner()


async def test_a_ledger_that_the_owner_is_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stored before the owner counts it."""
    monkeypatch.setattr(topic_owner, "ROLLOVER_S", 0)
    topic = FakeTopic()
    stored(topic, monkeypatch, topic.ledger_id, topic.ledger_id + 1)
    asked: list[InternalStats] = []

    async def ask() -> InternalStats:
        asked.append(await topic.internal_stats("topic"))
        topic.roll_over()
        return asked[-1]

    assert await as_owner(cast(AdminClient, topic), "topic", ask) is asked[1]


async def test_a_topic_that_was_never_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = FakeTopic()
    stored(topic, monkeypatch)
    await as_owner(cast(AdminClient, topic), "topic", lambda: topic.internal_stats("topic"))
