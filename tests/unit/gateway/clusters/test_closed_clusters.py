"""A cluster that nobody uses is closed, and is opened again for the next client."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from gateway.clusters import clusters as module
from gateway.config.gateway_config import FORWARDING_LISTENER
from gateway.dispatch import Dispatcher
from gateway.network.admission import Admission
from gateway.requests.cluster import Cluster, ClusterRefused
from gateway.requests.context import ANONYMOUS, Listener, RequestContext
from gateway.security.pulsar_authorizer import InvalidAuthorizer
from tests.unit.gateway.clusters.cluster_scene import ALICE, CONFIG, OUTSIDE, OWN, FakeServices, FakeView, Scene, until
from tests.unit.gateway.fleet.fleet_scene import member_of


class Time:
    """Passes when the test says so."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now_s = 1_000.0
        patch.setattr(module, "_now", lambda: self.now_s)
        patch.setattr(module, "CHECK_S", 0)
        patch.setattr(module, "TRY_AGAIN_S", 0)

    async def pass_(self, seconds: float) -> None:
        """In steps, between which the clusters are checked."""
        for _ in range(20):
            self.now_s += seconds / 20
            await turns()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


IDLE_S = CONFIG.kafka.cluster_limits.idle_ms / 1_000


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


async def test_an_unused_cluster_is_closed_completely(scene: Scene, time: Time) -> None:
    scene.clusters.start()
    ended: list[Cluster] = []
    scene.clusters.end_connections = ended.append
    served = await scene.clusters.open("acme/x")
    scene.metrics.of_cluster("acme/x")
    await time.pass_(IDLE_S * 0.9)
    assert "acme/x" in scene.clusters._open
    await time.pass_(IDLE_S * 0.2)
    assert ended == [served.cluster] and FakeServices.made[0].stopped and FakeView.open == 0
    assert scene.disconnected == ["acme/x"]
    clusters = scene.clusters
    left = (clusters._open, clusters._made, clusters._views, clusters._closing, clusters._asked_s, clusters._used_s)
    assert not any(left) and not any(cluster == "acme/x" for cluster, _ in scene.metrics._collectors)
    await scene.clusters.stop()


@pytest.mark.parametrize("by", ["connection", "work", "asking"])
async def test_one_that_is_used_stays(scene: Scene, time: Time, by: str) -> None:
    scene.clusters.start()
    await scene.clusters.open("acme/x")
    services = FakeServices.made[0]
    services.served.cluster.usage.connections = by == "connection"
    services.is_busy = by == "work"
    for _ in range(5):
        await time.pass_(IDLE_S * 0.8)
        if by == "asking":  # as other gateways do
            await scene.clusters.enter(Listener(FORWARDING_LISTENER), ANONYMOUS, "acme/x")
    services.served.cluster.usage.connections, services.is_busy = 0, False
    await time.pass_(IDLE_S * 0.9)
    assert FakeServices.made == [services] and not services.stopped
    await time.pass_(IDLE_S * 0.2)
    assert services.stopped
    await scene.clusters.stop()


async def test_one_that_was_deleted_is_closed_although_it_is_used(scene: Scene, time: Time) -> None:
    """Clients that connect afterwards use the new cluster. They have no rights of the old one."""
    scene.clusters.start()
    ended: list[Cluster] = []
    scene.clusters.end_connections = ended.append
    served = await scene.clusters.open("acme/x")
    services = FakeServices.made[0]
    served.cluster.usage.connections, services.is_busy = 1, True
    services.is_deleted = True
    await time.pass_(1)
    assert ended == [served.cluster] and services.stopped
    again = await scene.clusters.open("acme/x")
    await time.pass_(1)
    assert again is not served and ended == [served.cluster] and len(scene.prepared) == 2
    await scene.clusters.stop()


@pytest.mark.parametrize("listener", [OUTSIDE, Listener(FORWARDING_LISTENER)])
async def test_a_connection_that_was_about_to_enter_it_is_refused(scene: Scene, time: Time, listener: Listener) -> None:
    """Its services have ended: it would get errors for ever. A new connection opens the cluster again."""
    scene.clusters.start()
    dispatcher = SimpleNamespace(own=OWN, entrance=scene.clusters)
    context = cast(RequestContext, SimpleNamespace(listener=listener, principal=ALICE))
    admission = Admission(cast(Dispatcher, dispatcher), context)
    admission.ask_for("acme/x")
    served = await admission.choose(context)
    FakeServices.made[0].is_deleted = True
    await time.pass_(1)  # other connections have their turn before
    with pytest.raises(ClusterRefused, match="cluster closed"):
        admission.admit(served)
    admission.leave()
    assert served.cluster.usage.connections == 0
    await scene.clusters.stop()


async def test_a_client_that_connects_while_it_is_closed_has_it_opened_again(scene: Scene, time: Time) -> None:
    """When the old services are closed: both would write the same logs. Usage is counted on."""
    scene.clusters.start()
    served = await scene.clusters.open("acme/x")
    served.cluster.usage.bytes_in = 7
    FakeServices.made[0].may_stop.clear()
    await time.pass_(IDLE_S * 1.1)
    asking = asyncio.ensure_future(scene.clusters.open("acme/x"))
    await turns()
    assert not asking.done() and len(FakeServices.made) == 1 and len(scene.prepared) == 1
    FakeServices.made[0].may_stop.set()
    again = await asking
    assert again is not served and len(FakeServices.made) == 2 and again.cluster.usage.bytes_in == 7
    assert FakeView.open == 1
    await scene.clusters.stop()


async def test_usage_of_closed_clusters_is_not_kept_for_ever(
    scene: Scene, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster that is counted from zero again has another start: `~usage` must not seem to go back."""
    monkeypatch.setattr(module, "MAX_CLOSED", 2)
    scene.clusters.start()
    for name in ("acme/1", "acme/2", "acme/3"):
        usage = (await scene.clusters.open(name)).cluster.usage
        usage.bytes_in, usage.started_ms = 7, 1
        await time.pass_(IDLE_S * 1.1)
    assert [*scene.clusters._usage_before] == ["acme/2", "acme/3"]
    found = [(await scene.clusters.open(name)).cluster.usage for name in ("acme/1", "acme/3")]
    assert [each.bytes_in for each in found] == [0, 7]
    assert [each.started_ms == 1 for each in found] == [False, True]
    await scene.clusters.stop()


async def test_those_that_are_being_closed_count(scene: Scene, time: Time) -> None:
    scene.clusters.start()
    await scene.clusters.open("acme/x")
    await scene.clusters.open("acme/y")
    for each in FakeServices.made:
        each.may_stop.clear()
    await time.pass_(IDLE_S * 1.1)
    with pytest.raises(ClusterRefused):
        await scene.clusters.open("acme/z")
    for each in FakeServices.made:
        each.may_stop.set()
    await turns()
    assert await scene.clusters.open("acme/z")
    await scene.clusters.stop()


async def test_the_gateway_stops_while_one_is_closed(scene: Scene, time: Time) -> None:
    scene.clusters.start()
    await scene.clusters.open("acme/x")
    services = FakeServices.made[0]
    services.may_stop.clear()
    await time.pass_(IDLE_S * 1.1)
    stopping = asyncio.ensure_future(scene.clusters.stop())
    await turns()
    assert not stopping.done()
    services.may_stop.set()
    await stopping
    assert services.stopped


@pytest.mark.parametrize("waits_for", ["may_prepare", "rights"])
async def test_one_that_opens_slowly_is_not_closed_at_once(scene: Scene, time: Time, waits_for: str) -> None:
    getattr(scene, waits_for).clear()
    scene.clusters.start()
    asking = asyncio.ensure_future(scene.clusters.open("acme/x"))
    await time.pass_(IDLE_S * 1.1)
    getattr(scene, waits_for).set()
    await asking
    await time.pass_(IDLE_S * 0.9)
    assert "acme/x" in scene.clusters._open and not FakeServices.made[0].stopped
    await time.pass_(IDLE_S * 0.2)
    assert FakeServices.made[0].stopped
    await scene.clusters.stop()


@pytest.mark.parametrize("by_client", [True, False])
async def test_a_client_that_waits_for_the_opening_uses_the_cluster(scene: Scene, time: Time, by_client: bool) -> None:
    """Also if another gateway has asked for it first; and that gateway alone does not use it here."""
    scene.members.append(member_of("b", 1).model_copy(update={"clusters": ("acme/*",)}))
    scene.may_prepare.clear()
    scene.clusters.start()
    listeners = [Listener(FORWARDING_LISTENER), *([OUTSIDE] if by_client else [])]
    entering = [asyncio.ensure_future(scene.clusters.enter(each, ALICE, "acme/x")) for each in listeners]
    await until(lambda: bool(scene.prepared))
    scene.may_prepare.set()
    await asyncio.gather(*entering)
    await turns()
    assert FakeServices.made[0].opened_at == ["b"] * by_client
    await scene.clusters.stop()


async def test_a_cluster_whose_acls_are_never_loaded_is_closed(scene: Scene, time: Time) -> None:
    scene.rights_error = InvalidAuthorizer("custom")
    scene.clusters.start()
    with pytest.raises(ClusterRefused):
        await scene.clusters.open("acme/x")
    await time.pass_(IDLE_S * 1.1)
    assert FakeServices.made[0].stopped and FakeView.open == 0
    await scene.clusters.stop()


async def test_others_are_reminded_while_it_is_used_here(scene: Scene, time: Time) -> None:
    """Often enough that none of them closes it. A cluster that only others use is not reminded: both would keep it open
    for ever."""
    scene.members.append(member_of("b", 1).model_copy(update={"clusters": ("acme/*",)}))
    scene.clusters.start()
    await scene.clusters.enter(Listener(FORWARDING_LISTENER), ANONYMOUS, "acme/y")
    await scene.clusters.enter(Listener("outside"), ALICE, "acme/x")
    others, used = FakeServices.made
    used.served.cluster.usage.connections = 1
    await time.pass_(IDLE_S * 0.9)
    assert len(used.opened_at) >= 2 and others.opened_at == []
    used.served.cluster.usage.connections = 0
    reminded = len(used.opened_at)
    await time.pass_(IDLE_S * 0.9)
    assert len(used.opened_at) <= reminded + 2
    await scene.clusters.stop()
