"""The descriptions of topologies, and the files that are generated from them."""

import re

import pytest
from pydantic import ValidationError

from deploy.compose import generate
from deploy.compose.dashboards import DASHBOARDS
from deploy.local.cluster import addresses
from deploy.topology import settings
from deploy.topology.description import Kind, Topology, TopologyError, load, names
from deploy.topology.places import by_host_name
from gateway.observability.metrics import Metrics
from protocol.kafka.errors import ErrorCode


def test_sync() -> None:
    sync = load("sync")
    assert sync.regions == ["eu", "us", "witness"]
    assert {node.name for node in sync.nodes} == {
        "zk1-eu", "zk1-us", "zk1-witness", "bk1-eu", "bk2-eu", "bk1-us", "bk2-us", "pulsar1-eu", "pulsar2-eu",
        "pulsar1-us", "pulsar2-us", "gateway1-eu", "gateway1-us", "haproxy1-eu", "haproxy1-us",
    }  # fmt: skip
    assert [sync.rack(node) for node in sync.of(Kind.BOOKIE)] == ["/eu/rack1", "/eu/rack2", "/us/rack1", "/us/rack2"]
    assert sync.region_aware("stretched") and not sync.replicated
    geo = load("geo")
    assert [geo.rack(node) for node in geo.of(Kind.BOOKIE)] == ["/rack1", "/rack2", "/rack1", "/rack2"]
    assert geo.replicated


@pytest.mark.parametrize("name", names())
def test_names_differ(name: str) -> None:
    found = [node.name for node in load(name).nodes]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(("name", "lost"), [("sync", "eu"), ("sync", "us"), ("sync-small", "eu"), ("combined", "eu")])
def test_what_is_left_of_a_region_is_enough(name: str, lost: str) -> None:
    """A majority of ZooKeepers, an ensemble of bookies, and a broker."""
    topology = load(name)
    for cluster in topology.clusters:
        zookeepers = topology.of(Kind.ZOOKEEPER, cluster=cluster)
        assert 2 * sum(node.region != lost for node in zookeepers) > len(zookeepers)
        bookies = topology.of(Kind.BOOKIE, cluster=cluster)
        assert sum(node.region != lost for node in bookies) >= topology.quorum.ensemble
        assert any(node.region != lost for node in topology.of(Kind.BROKER, cluster=cluster))


def test_contradictions_are_refused() -> None:
    with pytest.raises(TopologyError, match="no topology nowhere; there are combined, geo"):
        load("nowhere")
    good = load("geo").model_dump()
    for wrong, message in (
        ({"served": "kafka/other"}, "kafka/other is served and not among the namespaces"),
        ({"namespaces": {"kafka/global": {"clusters": ["eu", "mars"]}}}, "not described: mars"),
        ({"quorum": {"ensemble": 3, "write": 2, "ack": 2}}, "fewer bookies than an ensemble"),
    ):
        with pytest.raises(ValidationError, match=message):
            Topology(**{**good, **wrong})


def test_gateways_ask_their_own_region_first() -> None:
    places = by_host_name(load("sync"))
    for gateway in places.topology.of(Kind.GATEWAY):
        sections = settings.gateway_sections(places, gateway)
        assert sections["pulsar"]["service_url"].startswith(f"pulsar://pulsar1-{gateway.region}:6650,pulsar2-")
        assert sections["kafka"]["advertised_host"] == f"haproxy1-{gateway.region}"
        assert sections["kafka"]["advertised_port"] == 9093
        assert sections["groups"] == {"mirror_replicated": False}


def test_regions_have_addresses_of_their_own() -> None:
    topology = load("geo")
    hosts = {node.name: addresses.host(topology, node) for node in topology.nodes}
    assert hosts["bk2-eu"] == "127.0.1.22"
    assert hosts["pulsar1-us"] == "127.0.2.31"
    assert len(set(hosts.values())) == len(hosts)


@pytest.mark.parametrize("name", [*generate.TOPOLOGIES, "grafana"])
def test_compose_files_are_up_to_date(name: str) -> None:
    """If not, run: python -m deploy.compose.generate"""
    made = generate.grafana_files() if name == "grafana" else generate.files(name)
    kept = [file for file in (generate.FOLDER / name).rglob("*") if file.is_file()]
    assert {str(file.relative_to(generate.FOLDER)): file.read_text() for file in kept} == made


def test_dashboards_show_metrics_that_gateways_have() -> None:
    metrics = Metrics()
    metrics.request("Produce", 9).answered(0.001)
    metrics.error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER)
    exported = {sample.name for family in metrics.registry.collect() for sample in family.samples}
    shown = re.findall(r"kafka_gateway_\w+", " ".join(panel.expression for panel in DASHBOARDS["gateways"]))
    assert shown and set(shown) <= exported
