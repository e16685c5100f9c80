"""How each node of a topology runs as a process of this machine: its files, its command, and when it is ready."""

from __future__ import annotations

import http.client
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import tomli_w

from deploy.local.class_archives import archive_options
from deploy.local.jars import PULSAR, classpath
from deploy.local.java import MissingToolError, java_executable
from deploy.local.standalone import ADD_OPENS, EVICTION_SETTINGS, LOG4J_CONFIG, LOW_LATENCY_SETTINGS
from deploy.topology import settings
from deploy.topology.description import Kind, Node
from deploy.topology.places import Places

REPOSITORY = Path(__file__).parents[3]
PROBE_TIMEOUT_S = 5.0

HEAP_MB = {Kind.ZOOKEEPER: 96, Kind.BOOKIE: 128, Kind.BROKER: 256}
DIRECT_MB = {Kind.ZOOKEEPER: 32, Kind.BOOKIE: 128, Kind.BROKER: 192}
MAIN_CLASS = {
    Kind.ZOOKEEPER: "org.apache.zookeeper.server.quorum.QuorumPeerMain",
    Kind.BOOKIE: "org.apache.bookkeeper.server.Main",
    Kind.BROKER: "org.apache.pulsar.PulsarBrokerStarter",
}
INITIALIZER_CLASS = "org.apache.pulsar.PulsarClusterMetadataSetup"
CONFIG_OPTION = {Kind.ZOOKEEPER: [], Kind.BOOKIE: ["--conf"], Kind.BROKER: ["--broker-conf"]}

# Options for a fast start: a dozen Java processes start together on a laptop, and do not run for long.
SMALL_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:CICompilerCount=1", "-Xss512k")

SMALL_BOOKIE = {
    "allowLoopback": "true",
    "diskUsageThreshold": "0.99",
    "diskUsageLwmThreshold": "0.98",
    "numAddWorkerThreads": "1",
    "numReadWorkerThreads": "1",
    "numHighPriorityWorkerThreads": "1",
    "serverNumIOThreads": "1",
    "journalPreAllocSizeMB": "4",
    "dbStorage_writeCacheMaxSizeMb": "16",
    "dbStorage_readAheadCacheMaxSizeMb": "8",
    "dbStorage_rocksDB_blockCacheSize": "4194304",
    **{name: value for name, value in LOW_LATENCY_SETTINGS.items() if name.startswith("journal")},
}

SMALL_BROKER = {
    "numIOThreads": "2",
    "numHttpServerThreads": "8",
    "numOrderedExecutorThreads": "2",
    "numExecutorThreadPoolSize": "2",
    "numCacheExecutorThreadPoolSize": "2",
    "bookkeeperClientNumWorkerThreads": "2",
    "bookkeeperClientNumIoThreads": "2",
    "managedLedgerCacheSizeMB": "32",
    "brokerShutdownTimeoutMs": "5000",
    "defaultNumberOfNamespaceBundles": "4",
    **EVICTION_SETTINGS,
    **{name: value for name, value in LOW_LATENCY_SETTINGS.items() if not name.startswith("journal")},
}


def prepare(places: Places, node: Node, folder: Path) -> list[str]:
    """Write the node's files into its folder, and return its command. Raises MissingToolError and ResolveError."""
    folder.mkdir(parents=True, exist_ok=True)
    if node.kind is Kind.GATEWAY:
        file = folder / "gateway.toml"
        file.write_text(tomli_w.dumps(settings.gateway_sections(places, node)))
        return [sys.executable, "-m", "gateway.cli", "serve", "--config", str(file)]
    if node.kind is Kind.HAPROXY:
        file = folder / "haproxy.cfg"
        file.write_text(settings.haproxy_text(places, node))
        return [haproxy_executable(), "-db", "-f", str(file)]
    file = folder / "conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in _settings(places, node, folder).items()))
    return [*_java(node.kind), MAIN_CLASS[node.kind], *CONFIG_OPTION[node.kind], str(file)]


def environment(node: Node) -> dict[str, str] | None:
    return {"PYTHONPATH": str(REPOSITORY)} if node.kind is Kind.GATEWAY else None


def initializer(places: Places, cluster: str) -> list[str]:
    """The command that initializes ZooKeeper for a new cluster."""
    urls = settings.metadata_urls(places, cluster)
    options = {
        "--cluster": cluster,
        "--metadata-store": urls["metadataStoreUrl"],
        "--configuration-metadata-store": urls["configurationMetadataStoreUrl"],
        "--web-service-url": places.admin_url(cluster),
        "--broker-service-url": places.service_url(cluster),
    }
    return [*_java(Kind.ZOOKEEPER), INITIALIZER_CLASS, *(word for option in options.items() for word in option)]


def is_ready(places: Places, node: Node) -> bool:
    place = places.of(node)
    if node.kind is Kind.GATEWAY:
        return _answers(place.at("http"), "/readyz")
    if node.kind is Kind.BROKER:
        return _answers(place.at("http"), f"/admin/v2/brokers/{node.cluster}")
    return _listens(place.host, place.ports["client"])


def haproxy_executable() -> str:
    path = shutil.which("haproxy")
    if path is None:
        raise MissingToolError("haproxy is needed (Debian package haproxy), and none was found.")
    return path


def _settings(places: Places, node: Node, folder: Path) -> Mapping[str, str]:
    place = places.of(node)
    if node.kind is Kind.ZOOKEEPER:
        (folder / "data").mkdir(exist_ok=True)
        (folder / "data" / "myid").write_text(f"{settings.zookeeper_id(places, node)}\n")
        listening = {"dataDir": f"{folder}/data", "clientPortAddress": place.host}
        return {**settings.zookeeper_settings(places, node), **listening}
    if node.kind is Kind.BOOKIE:
        listening = {
            "prometheusStatsHttpAddress": place.host,
            "journalDirectories": f"{folder}/journal",
            "ledgerDirectories": f"{folder}/ledgers",
        }
        return {**SMALL_BOOKIE, **settings.bookie_settings(places, node), **listening}
    return {**SMALL_BROKER, **settings.broker_settings(places, node), "bindAddress": place.host}


def _java(kind: Kind) -> list[str]:
    memory = [f"-Xms32m -Xmx{HEAP_MB[kind]}m".split(), [f"-XX:MaxDirectMemorySize={DIRECT_MB[kind]}m"]]
    opens = [f"--add-opens={package}=ALL-UNNAMED" for package in ADD_OPENS]
    properties = [f"-Dlog4j.configurationFile={LOG4J_CONFIG}", "-Dio.netty.tryReflectionSetAccessible=true"]
    flags = [*(word for words in memory for word in words), "-XX:+ExitOnOutOfMemoryError", *SMALL_JVM]
    jars = classpath(PULSAR)
    return [java_executable(), *archive_options(jars), *flags, *opens, *properties, "-cp", jars]


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), PROBE_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _answers(address: str, path: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
