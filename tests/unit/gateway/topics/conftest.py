"""A catalog on a Pulsar that is simulated."""

import pytest

from tests.unit.gateway.topics.catalog_scene import Scene


@pytest.fixture
async def scene() -> Scene:
    scene = Scene()
    await scene.catalog.create("a", 2, {})
    return scene
