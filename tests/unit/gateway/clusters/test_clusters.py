"""A cluster is opened once for all waiting connections, also when that fails or the gateway stops."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from gateway.clusters import clusters as module
from gateway.clusters.clusters import Clusters
from gateway.clusters.configs import of_cluster, with_share
from gateway.config.clusters import MAX_NAME_CHARACTERS
from gateway.config.gateway_config import FORWARDING_LISTENER, Config
from gateway.namespace import UnsupportedCluster
from gateway.observability.logs import LINES_PER_S, MAX_FACT_CHARACTERS, SparseLog
from gateway.requests.cluster import ClusterRefused
from gateway.requests.context import ANONYMOUS, Listener
from gateway.security.pulsar_authorizer import InvalidAuthorizer
from tests.unit.gateway.clusters.cluster_scene import ALICE, CONFIG, OUTSIDE, OWN, FakeServices, Scene, until
from tests.unit.gateway.fleet.fleet_scene import member_of


async def test_two_first_clients_open_it_once(scene: Scene) -> None:
    scene.may_prepare.clear()
    asking = [asyncio.ensure_future(scene.clusters.open("acme/x")) for _ in range(2)]
    await until(lambda: bool(scene.prepared))
    asking.append(asyncio.ensure_future(scene.clusters.open("acme/x")))
    scene.may_prepare.set()
    found = await asyncio.gather(*asking)
    assert found[0] is found[1] is found[2] is await scene.clusters.open("acme/x")
    assert scene.prepared == [("acme/x", False)] and len(FakeServices.made) == 1
    await scene.clusters.stop()
    assert FakeServices.made[0].started and FakeServices.made[0].stopped


async def test_a_client_that_disconnects_does_not_affect_others(scene: Scene) -> None:
    scene.may_prepare.clear()
    first = asyncio.ensure_future(scene.clusters.open("acme/x"))
    await until(lambda: bool(scene.prepared))
    second = asyncio.ensure_future(scene.clusters.open("acme/x"))
    first.cancel()
    scene.may_prepare.set()
    assert (await second).cluster is FakeServices.made[0].served.cluster
    await scene.clusters.stop()


async def test_no_client_is_served_before_the_acls_are_loaded(scene: Scene) -> None:
    scene.rights.clear()
    asking = [asyncio.ensure_future(scene.clusters.open("acme/x")) for _ in range(2)]
    await until(lambda: bool(FakeServices.made))
    asking.append(asyncio.ensure_future(scene.clusters.open("acme/x")))
    await asyncio.sleep(0)
    assert not any(each.done() for each in asking)
    scene.rights.set()
    assert len({id(each) for each in await asyncio.gather(*asking)}) == 1
    await scene.clusters.stop()


async def test_what_fails_is_tried_again_later(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.error = UnsupportedCluster("there is no such namespace")
    asking = [asyncio.ensure_future(scene.clusters.open("acme/x")) for _ in range(3)]
    assert [type(each) for each in await asyncio.gather(*asking, return_exceptions=True)] == [ClusterRefused] * 3
    scene.error = None
    with pytest.raises(ClusterRefused):
        await scene.clusters.open("acme/x")
    assert len(scene.prepared) == 1 and not FakeServices.made
    assert await scene.clusters.open("acme/y")
    monkeypatch.setattr(module, "TRY_AGAIN_S", 0)
    assert await scene.clusters.open("acme/x")
    await scene.clusters.stop()


async def test_rights_that_cannot_be_loaded_are_loaded_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the existing services: they cannot be created twice."""
    monkeypatch.setattr(module, "TRY_AGAIN_S", 0)
    scene.rights_error = InvalidAuthorizer("custom")
    with pytest.raises(ClusterRefused):
        await scene.clusters.open("acme/x")
    scene.rights_error = None
    assert (await scene.clusters.open("acme/x")).cluster is FakeServices.made[0].served.cluster
    assert len(FakeServices.made) == 1
    await scene.clusters.stop()


def kept(clusters: Clusters) -> set[str]:
    by_name = (clusters._asked_s, clusters._used_s, clusters._made, clusters._views, clusters._opening)
    return {name for names in by_name for name in names}


async def test_nothing_is_kept_of_what_cannot_be_opened(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody in `users` of `acme/*` may name any namespace."""
    monkeypatch.setattr(module, "MAX_FAILED", 3)
    scene.error = UnsupportedCluster("there is no such namespace")
    for number in range(10):
        name = f"acme/{number}"
        listeners = (OUTSIDE, Listener(FORWARDING_LISTENER), OUTSIDE)
        entering = (scene.clusters.enter(each, ALICE, name) for each in listeners)
        refused = await asyncio.gather(*entering, return_exceptions=True)
        assert [type(each) for each in refused] == [ClusterRefused] * 3
    assert len(scene.prepared) == 10 and not kept(scene.clusters)
    assert [*scene.clusters.failures] == ["acme/7", "acme/8", "acme/9"]
    for name in ("nowhere/x", "acme/9"):
        with pytest.raises(ClusterRefused):
            await scene.clusters.open(name)
    assert len(scene.prepared) == 10 and not kept(scene.clusters)
    await scene.clusters.stop()


async def test_a_longer_name_is_no_cluster(scene: Scene) -> None:
    longest = "acme/".ljust(MAX_NAME_CHARACTERS, "x")
    for listener in (OUTSIDE, Listener(FORWARDING_LISTENER)):
        with pytest.raises(ClusterRefused, match="cluster is not served"):
            await scene.clusters.enter(listener, ALICE, longest + "x")
    assert not scene.prepared and not kept(scene.clusters) and not scene.clusters.failures
    assert await scene.clusters.enter(OUTSIDE, ALICE, longest)
    await scene.clusters.stop()


async def test_failures_have_few_short_lines(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "sparse_log", SparseLog(module.log, lambda: 0, LINES_PER_S))
    with capture_logs() as lines:
        for number in range(LINES_PER_S + 10):
            scene.error = UnsupportedCluster("no" * MAX_FACT_CHARACTERS)
            with pytest.raises(ClusterRefused):
                await scene.clusters.open(f"acme/{number}")
    found = [line for line in lines if line["event"] == "cannot open cluster"]
    assert [line["cluster"] for line in found] == [f"acme/{number}" for number in range(LINES_PER_S)]
    assert {len(line["error"]) for line in found} == {MAX_FACT_CHARACTERS}
    await scene.clusters.stop()


@pytest.mark.parametrize("waits_for", ["may_prepare", "rights"])
async def test_the_gateway_stops_while_one_is_opened(scene: Scene, waits_for: str) -> None:
    getattr(scene, waits_for).clear()
    asking = asyncio.ensure_future(scene.clusters.open("acme/x"))
    await until(lambda: bool(scene.prepared if waits_for == "may_prepare" else FakeServices.made))
    await scene.clusters.stop()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert all(each.stopped for each in FakeServices.made)
    with pytest.raises(ClusterRefused):
        await scene.clusters.open("acme/y")
    assert len(scene.prepared) == 1


async def test_no_more_than_so_many(scene: Scene) -> None:
    await scene.clusters.open("acme/x")
    await scene.clusters.open("other/a")
    with pytest.raises(ClusterRefused):
        await scene.clusters.open("acme/z")
    assert scene.prepared == [("acme/x", False), ("other/a", True)]
    await scene.clusters.stop()


async def test_a_client_waits_no_longer_than_it_may(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPEN_S", 0)
    scene.may_prepare.clear()
    with pytest.raises(ClusterRefused):
        await scene.clusters.open("acme/x")
    scene.may_prepare.set()
    await until(lambda: "acme/x" in scene.clusters._open)
    assert await scene.clusters.open("acme/x")
    await scene.clusters.stop()


async def test_a_cluster_that_is_deleted_while_it_is_opened_is_made_anew(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rights are never loaded, so what it lacks has to be looked at again. The services are kept."""
    monkeypatch.setattr(module, "OPEN_S", 0.05)
    monkeypatch.setattr(module, "LOAD_S", 0.01, raising=False)
    monkeypatch.setattr(module, "TRY_AGAIN_S", 0)
    scene.rights.clear()
    with pytest.raises(ClusterRefused):
        await scene.clusters.open("other/a")
    await until(lambda: not scene.clusters._opening)
    scene.rights.set()
    assert await scene.clusters.open("other/a")
    assert scene.prepared == [("other/a", True)] * 2 and len(FakeServices.made) == 1
    await scene.clusters.stop()


async def test_clusters_that_connections_may_enter(scene: Scene) -> None:
    """The other gateway has checked the client, so the cluster that it names is served."""
    outside, peers = Listener("outside"), Listener(FORWARDING_LISTENER)
    assert await scene.clusters.enter(outside, ANONYMOUS, None) is OWN
    assert await scene.clusters.enter(peers, ANONYMOUS, None) is OWN
    entered = await scene.clusters.enter(outside, ALICE, "acme/x")
    assert entered is await scene.clusters.enter(peers, ANONYMOUS, "acme/x")
    with pytest.raises(ClusterRefused):
        await scene.clusters.enter(outside, ANONYMOUS, "acme/x")
    for name in ("nowhere/x", "acme/x-gateway", "kafka/default", "acme/../x"):
        with pytest.raises(ClusterRefused):
            await scene.clusters.enter(peers, ANONYMOUS, name)
    await scene.clusters.stop()


async def test_those_of_listeners_are_opened_without_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRY_AGAIN_S", 0)
    kafka = CONFIG.kafka.model_dump() | {"cluster": "acme/x"}
    config = Config.model_validate({"kafka": kafka, "fleet": {"forwarding": {}}})
    scene = Scene(monkeypatch, config)
    scene.error = UnsupportedCluster("not yet")
    scene.clusters.start()
    await until(lambda: len(scene.prepared) > 2)
    scene.error = None
    await until(lambda: [each.name for each in FakeServices.made] == ["acme/x"])
    await scene.clusters.stop()


async def test_what_is_open_is_opened_by_the_others(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each gateway that serves it, and again if it did not answer or has started again."""
    monkeypatch.setattr(module, "TRY_AGAIN_S", 0)
    served = {"clusters": ("acme/*",)}
    scene.members += [member_of("b", 1).model_copy(update=served), member_of("without", 2)]
    await scene.clusters.enter(Listener("outside"), ALICE, "acme/x")
    services = FakeServices.made[0]
    services.answers = False
    scene.clusters.start()
    await until(lambda: services.opened_at[:2] == ["b", "b"])
    services.answers = True
    await until(lambda: len(services.opened_at) > 2)
    for _ in range(20):
        await asyncio.sleep(0)
    answered = len(services.opened_at)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(services.opened_at) == answered and {*services.opened_at} == {"b"}
    scene.members[1] = member_of("b again", 1).model_copy(update=served)
    await until(lambda: services.opened_at[answered:] == ["b again"])
    await scene.clusters.stop()


def test_a_clusters_configuration() -> None:
    config = of_cluster(CONFIG, "acme/x")
    assert (config.pulsar.full_namespace, config.pulsar.full_system_namespace) == ("acme/x", "acme/x-gateway")
    assert config.groups.offsets_topic_partitions == config.transactions.state_topic_partitions == 1
    assert config.pulsar.service_url == CONFIG.pulsar.service_url
    for shared in (config, with_share(CONFIG)):
        assert shared.limits.max_connections == CONFIG.limits.max_connections // 2
        assert shared.limits.max_fetch_sessions == CONFIG.limits.max_fetch_sessions // 2
    assert with_share(CONFIG).pulsar == CONFIG.pulsar
