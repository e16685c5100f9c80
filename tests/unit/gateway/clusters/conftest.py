"""Clusters on fakes."""

from __future__ import annotations

import pytest

from tests.unit.gateway.clusters.cluster_scene import Scene


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)
