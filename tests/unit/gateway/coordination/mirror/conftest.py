"""The mirror, without pauses."""

from collections.abc import AsyncIterator

import pytest

from gateway.coordination.mirror import schedule as mirror_schedule
from tests.unit.gateway.coordination.mirror.mirror_harness import Harness


@pytest.fixture
async def harness(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Harness]:
    monkeypatch.setattr(mirror_schedule, "COALESCE_MS", 0)
    monkeypatch.setattr(mirror_schedule, "PAUSE_FIRST_MS", 5)
    monkeypatch.setattr(mirror_schedule, "START_EVERY_MS", 0)
    made = Harness()
    yield made
    await made.mirror.stop()
