"""A log on a fake topic, as a fixture."""

from __future__ import annotations

import math

import pytest

from gateway.log.bounds import drained
from gateway.log.writing import known_producers, producer_supply
from tests.unit.gateway.log.log_scene import PLAIN, Scene, batch


@pytest.fixture
def no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_supply, "LATE_ARRIVAL_S", 0)
    monkeypatch.setattr(drained, "DRAIN_PAUSE_S", 0)


@pytest.fixture
async def scene(no_settling: None) -> Scene:
    scene = Scene()
    await scene.log.prepare(PLAIN, 1)
    scene.topic.write(bytes(batch(1)), 1, "other", 0)
    await scene.log.end.refresh()
    assert scene.log.end_offset == 1
    return scene


@pytest.fixture
def others_still_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries of other gateways may arrive however late."""
    monkeypatch.setattr(known_producers, "LATE_ARRIVAL_S", math.inf)
