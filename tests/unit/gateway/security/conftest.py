"""Fixtures of the tests that follow `~security`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from unittest.mock import AsyncMock

import pytest

from gateway.security import security_log as module
from tests.unit.gateway.security.security_log_scene import FakeTopic, Scene


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> FakeTopic:
    topic = FakeTopic()
    monkeypatch.setattr(module, "PAUSE_S", 0)
    monkeypatch.setattr(module, "read_entries", topic.read)
    monkeypatch.setattr(module, "keep_local", AsyncMock())
    return topic


@pytest.fixture
async def scene(topic: FakeTopic) -> AsyncIterator[Scene]:
    scene = Scene(topic)
    yield scene
    await scene.log.close()
