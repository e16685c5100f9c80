"""Clusters that were opened to check a password: any client can cause it, so they must not keep others out."""

from __future__ import annotations

import pytest

from gateway.clusters import clusters as module
from gateway.config.gateway_config import Config
from gateway.requests.cluster import ClusterRefused
from gateway.requests.context import Listener, Principal
from tests.unit.event_loop import let_callbacks_run
from tests.unit.gateway.clusters.cluster_scene import FakeServices, Scene

BY_USER = Config.model_validate(
    {
        "kafka": {
            "clusters": [{"namespace": f"{name}/a", "users": [f"{name}-user"]} for name in "xyz"],
            "cluster_limits": {"max_open": 2},
        },
        "fleet": {"forwarding": {}},
    }
)


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIN_OPEN_S", 0.0)


async def names_open(scene: Scene) -> list[str]:
    await let_callbacks_run()
    return sorted(each.name for each in FakeServices.made if not each.stopped)


@pytest.mark.usefixtures("old")
async def test_clusters_that_nobody_has_logged_in_to_are_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, listener = Scene(monkeypatch, BY_USER), Listener("default")
    for name in "xy":
        await scene.clusters.home(listener, f"{name}-user")
    await scene.clusters.enter(listener, Principal(name="z-user"), None)
    assert await names_open(scene) == ["y/a", "z/a"]
    await scene.clusters.home(listener, "x-user")
    assert await names_open(scene) == ["x/a", "z/a"], "a client has logged in to z"
    await scene.clusters.enter(listener, Principal(name="x-user"), "x/a", is_own_user=True)
    with pytest.raises(ClusterRefused):
        await scene.clusters.home(listener, "y-user")
    await scene.clusters.stop()


async def test_a_cluster_is_not_evicted_while_a_password_may_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, listener = Scene(monkeypatch, BY_USER), Listener("default")
    for name in "xy":
        await scene.clusters.home(listener, f"{name}-user")
    with pytest.raises(ClusterRefused):
        await scene.clusters.enter(listener, Principal(name="z-user"), None)
    await scene.clusters.stop()


@pytest.mark.usefixtures("old")
async def test_few_are_evicted_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients without a password may ask for one cluster after the other."""
    monkeypatch.setattr(module, "MAX_EVICTED", 1)
    scene, listener = Scene(monkeypatch, BY_USER), Listener("default")
    for name in "xy":
        await scene.clusters.home(listener, f"{name}-user")
    FakeServices.made[0].may_stop.clear()
    await scene.clusters.home(listener, "z-user")
    with pytest.raises(ClusterRefused):
        await scene.clusters.home(listener, "x-user")
    FakeServices.made[0].may_stop.set()
    await let_callbacks_run()
    await scene.clusters.home(listener, "x-user")
    await scene.clusters.stop()
