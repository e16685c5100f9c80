"""Compose files of the topologies: `python -m deploy.compose.generate` writes them anew, one folder each.

A test says when they are out of date. Every node is a container that has its name as host name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomli_w
import yaml

from deploy.compose import dashboards
from deploy.topology import settings
from deploy.topology.description import Kind, Node, Topology, load
from deploy.topology.places import PORTS, Places, by_host_name

FOLDER = Path(__file__).parent
TOPOLOGIES = ("zk", "sync", "geo", "combined")
PULSAR_IMAGE = "apachepulsar/pulsar:4.0.7"
HAPROXY_IMAGE = "haproxy:2.6"
PROMETHEUS_IMAGE = "prom/prometheus:v2.53.0"
GRAFANA_IMAGE = "grafana/grafana:11.1.0"
MEMORY = {
    Kind.ZOOKEEPER: "-Xms64m -Xmx128m",
    Kind.BOOKIE: "-Xms128m -Xmx256m -XX:MaxDirectMemorySize=256m",
    Kind.BROKER: "-Xms128m -Xmx384m -XX:MaxDirectMemorySize=384m",
}
CONFIG_FILE = {Kind.ZOOKEEPER: "zookeeper.conf", Kind.BOOKIE: "bookkeeper.conf", Kind.BROKER: "broker.conf"}
COMMAND = {Kind.ZOOKEEPER: "zookeeper", Kind.BOOKIE: "bookie", Kind.BROKER: "broker"}
DATA = "/pulsar/data/node"
GATEWAY_HOME = "/etc/kafka-gateway"

Service = dict[str, Any]


def files(name: str) -> dict[str, str]:
    """All files of one topology, by path under this folder."""
    topology = load(name)
    places = by_host_name(topology)
    made = {"compose.yaml": _compose(places), "prometheus.yml": _prometheus(topology)}
    for node in topology.of(Kind.GATEWAY):
        sections = settings.gateway_sections(places, node)
        listening = {"kafka": {"host": "0.0.0.0"}, "http": {"host": "0.0.0.0"}}
        listens_everywhere = {key: {**sections[key], **listening.get(key, {})} for key in sections}
        made[f"{node.name}.toml"] = tomli_w.dumps(listens_everywhere)
    for kind in CONFIG_FILE:
        made |= {f"{node.name}.conf": _conf(places, node) for node in topology.of(kind)}
    for node in topology.of(Kind.HAPROXY):
        made[f"{node.name}.cfg"] = settings.haproxy_text(places, node)
    return {f"{name}/{path}": text for path, text in made.items()}


def _compose(places: Places) -> str:
    topology = places.topology
    services: dict[str, Service] = {node.name: _service(places, node) for node in topology.nodes}
    for cluster in topology.clusters:
        services[f"metadata-{cluster}"] = _metadata(places, cluster)
    services["setup"] = {
        "build": "../../..",
        "entrypoint": ["python", "-m", "deploy.topology.setup", topology.name],
        "depends_on": _after(topology.of(Kind.BROKER), "service_started"),
        "restart": "on-failure",  # brokers may take longer to start than it waits
    }
    services["prometheus"] = _mounted(PROMETHEUS_IMAGE, 9090, "./prometheus.yml:/etc/prometheus/prometheus.yml:ro")
    services["grafana"] = {
        **_mounted(GRAFANA_IMAGE, 3000, "../grafana/provisioning:/etc/grafana/provisioning:ro"),
        "environment": {"GF_AUTH_ANONYMOUS_ENABLED": "true"},
    }
    services["grafana"]["volumes"].append("../grafana/dashboards:/var/lib/grafana/dashboards:ro")
    head = f"# {topology.about}\n# Made by deploy.compose.generate from deploy/topology/{topology.name}.toml.\n"
    compose = {"name": f"kafka-gateway-{topology.name}", "services": services}
    return head + yaml.safe_dump(compose, sort_keys=False, width=120)


def _service(places: Places, node: Node) -> Service:
    if node.kind is Kind.GATEWAY:
        return {
            "build": "../../..",
            "hostname": node.name,
            "volumes": [f"./{node.name}.toml:{GATEWAY_HOME}/gateway.toml:ro"],
            "depends_on": {"setup": {"condition": "service_completed_successfully"}},
            "restart": "on-failure",
        }
    if node.kind is Kind.HAPROXY:
        # The host reaches it only by the names that gateways advertise: see docs/guides/regions.md.
        config = f"./{node.name}.cfg:/usr/local/etc/haproxy/haproxy.cfg:ro"
        gateways = places.topology.of(Kind.GATEWAY, region=node.region)
        image = {"image": HAPROXY_IMAGE, "hostname": node.name, "volumes": [config]}
        return {**image, "depends_on": _after(gateways, "service_started")}
    return _pulsar(places, node)


def _pulsar(places: Places, node: Node) -> Service:
    after: Service = {}
    prepare = ""
    if node.kind is Kind.ZOOKEEPER:
        prepare = f"mkdir -p {DATA} && echo {settings.zookeeper_id(places, node)} > {DATA}/myid && "
    elif node.kind is Kind.BOOKIE:
        after = {f"metadata-{node.cluster}": {"condition": "service_completed_successfully"}}
    else:
        after = _after(places.topology.of(Kind.BOOKIE, cluster=node.cluster), "service_started")
    return {
        "image": PULSAR_IMAGE,
        "hostname": node.name,
        "command": ["sh", "-c", f"{prepare}exec bin/pulsar {COMMAND[node.kind]}"],
        "environment": {"PULSAR_MEM": MEMORY[node.kind]},
        "volumes": [f"./{node.name}.conf:/pulsar/conf/{CONFIG_FILE[node.kind]}:ro"],
        **({"depends_on": after} if after else {}),
        "restart": "unless-stopped",  # a bookie that ZooKeeper considers dead exits with code 0
    }


def _conf(places: Places, node: Node) -> str:
    if node.kind is Kind.ZOOKEEPER:
        values = {**settings.zookeeper_settings(places, node), "dataDir": DATA}
    elif node.kind is Kind.BOOKIE:
        directories = {"journalDirectories": f"{DATA}/journal", "ledgerDirectories": f"{DATA}/ledgers"}
        values = {**settings.bookie_settings(places, node), **directories}
    else:
        values = settings.broker_settings(places, node)
    return "".join(f"{key}={value}\n" for key, value in values.items())


def _metadata(places: Places, cluster: str) -> Service:
    urls = settings.metadata_urls(places, cluster)
    initialize = " ".join((
        f"bin/pulsar initialize-cluster-metadata --cluster {cluster}",
        f"--metadata-store {urls['metadataStoreUrl']}",
        f"--configuration-metadata-store {urls['configurationMetadataStoreUrl']}",
        f"--web-service-url {places.admin_url(cluster)} --broker-service-url {places.service_url(cluster)}",
    ))  # fmt: skip
    zookeepers = places.topology.of(Kind.ZOOKEEPER, cluster=cluster)
    return {
        "image": PULSAR_IMAGE,
        "command": ["sh", "-c", initialize],
        "depends_on": _after(zookeepers, "service_started"),
        "restart": "on-failure",
    }


def _mounted(image: str, port: int, volume: str) -> Service:
    return {"image": image, "ports": [f"{port}:{port}"], "volumes": [volume]}


def _after(nodes: list[Node], condition: str) -> dict[str, Any]:
    return {node.name: {"condition": condition} for node in nodes}


def _prometheus(topology: Topology) -> str:
    jobs = {"bookies": (Kind.BOOKIE, "metrics"), "brokers": (Kind.BROKER, "http"), "gateways": (Kind.GATEWAY, "http")}
    scraped = []
    for job, (kind, purpose) in jobs.items():
        targets = [
            {
                "targets": [f"{node.name}:{PORTS[kind][purpose]}"],  # type: ignore[index]
                "labels": {"node": node.name, "region": node.region, "cluster": node.cluster},
            }
            for node in topology.of(kind)
        ]
        scraped.append({"job_name": job, "static_configs": targets})
    return yaml.safe_dump({"global": {"scrape_interval": "5s"}, "scrape_configs": scraped}, sort_keys=False)


def grafana_files() -> dict[str, str]:
    """Grafana's files, by path under this folder."""
    return {f"grafana/{path}": text for path, text in dashboards.files().items()}


def write() -> None:
    for made in (grafana_files(), *map(files, TOPOLOGIES)):
        for path, text in made.items():
            file = FOLDER / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)


if __name__ == "__main__":
    write()
