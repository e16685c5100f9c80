"""The settings of each process of a topology, the same for configuration files and for containers.

Data directories and ways to listen are added by the code that starts the processes.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from deploy.haproxy.config import Backend, haproxy_config
from deploy.topology.description import Kind, Node
from deploy.topology.places import Places

SESSION_TIMEOUT_MS = 10_000
"""A broker or bookie whose ZooKeeper session is silent for this time is dead: others take over its work."""
TICK_MS = 1_000
BOOKIE_TIMEOUT_S = 5
"""A write that is not acknowledged in this time goes to another bookie: the bookie may hang, or its region be cut off.
"""
BOOKIE_CHECK_S = 5
"""How often bookies with unacknowledged writes are searched for, by default every minute. Until they are found, a
broker tries one after the other, and writes wait."""
BOOKIE_QUARANTINE_S = 30
"""Such bookies get no new ledger for this time, by default half an hour. Meanwhile all copies may be in one region."""
RECOVERY_PAUSE_MS = 10_000
"""The pause before a ledger that could not be copied, or is still being written, is tried again; by default minutes."""
NEXT_LEDGER_MS = 100
"""The pause before the next ledger is tried, after one could not be copied or is still being written. The default of 5
s is too long: many ledgers are still being written, and one that could be copied follows them."""
SNAPSHOT_INTERVAL_MS = 1_000
"""The time between two snapshots of replicated subscriptions: a subscription moves from snapshot to snapshot."""

BOOKIE_READS = {"readBufferSizeBytes": str(64 * 1024)}
"""By default, a bookie reads its entry logs in pieces of 512 bytes: 2,000 system calls for a megabyte."""

GATEWAY_NEEDS = {
    "brokerEntryMetadataInterceptors": "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
    "exposingBrokerEntryMetadataToClientEnabled": "true",
}
"""What the gateway requires of any broker."""

BROKER_TIMES = "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor"
"""Copies from another cluster have the publish times of their source; searches by time need times that increase."""

TOPIC_SETTINGS = {
    "topicLevelPoliciesEnabled": "true",
    "systemTopicEnabled": "true",
    "allowAutoTopicCreation": "false",
}
"""Kafka's topic configurations are topic-level policies, which Pulsar keeps in system topics.

A topic exists only if it was created, never because a client named it.
"""

Settings = dict[str, str]


def zookeeper_settings(places: Places, node: Node) -> Settings:
    """Settings of a ZooKeeper server; those of an ensemble if the cluster has several."""
    settings = {
        "tickTime": str(TICK_MS),
        "initLimit": "10",
        "syncLimit": "5",
        "maxSessionTimeout": "60000",
        "maxClientCnxns": "0",
        "clientPort": str(places.of(node).ports["client"]),
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "ruok,srvr",
        "autopurge.purgeInterval": "1",
    }
    ensemble = places.topology.of(Kind.ZOOKEEPER, cluster=node.cluster)
    if len(ensemble) > 1:
        for number, each in enumerate(ensemble, 1):
            place = places.of(each)
            settings[f"server.{number}"] = f"{place.at('peer')}:{place.ports['election']}"
    return settings


def zookeeper_id(places: Places, node: Node) -> int:
    return places.topology.of(Kind.ZOOKEEPER, cluster=node.cluster).index(node) + 1


def bookie_settings(places: Places, node: Node) -> Settings:
    place = places.of(node)
    return {
        # Not as metadataServiceUri: the bookie's client does not look for Pulsar's racks there.
        "zkServers": ",".join(_near_zookeepers(places, node.cluster, node.region)),
        "zkTimeout": str(SESSION_TIMEOUT_MS),
        "advertisedAddress": place.host,
        "bookiePort": str(place.ports["client"]),
        "autoRecoveryDaemonEnabled": "true",
        "openLedgerRereplicationGracePeriod": str(RECOVERY_PAUSE_MS),
        "lockReleaseOfFailedLedgerGracePeriod": str(RECOVERY_PAUSE_MS),
        "rwRereplicateBackoffMs": str(NEXT_LEDGER_MS),
        **BOOKIE_READS,
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
        "statsProviderClass": "org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider",
        "prometheusStatsHttpPort": str(place.ports["metrics"]),
        **({"ensemblePlacementPolicy": _REGION_AWARE} if places.topology.region_aware(node.cluster) else {}),
        "reppDnsResolverClass": "org.apache.pulsar.bookie.rackawareness.BookieRackAffinityMapping",
    }


LOOPBACK = "127.0.0.0/8"
PRIVATE_NETWORKS = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]
"""The networks of containers that are known by name only."""
_REGION_AWARE = "org.apache.bookkeeper.client.RegionAwareEnsemblePlacementPolicy"


def metadata_urls(places: Places, cluster: str, region: str | None = None) -> Settings:
    """Each cluster has its own metadata store, for configuration too: it works without the other clusters."""
    url = f"zk:{','.join(_near_zookeepers(places, cluster, region))}"
    return {"metadataStoreUrl": url, "configurationMetadataStoreUrl": url}


def _near_zookeepers(places: Places, cluster: str, region: str | None) -> list[str]:
    """The ZooKeeper servers of the region and of witness regions, or all if there are none.

    A session with a server of another region would expire when that region is lost, before it could move to a server of
    its own region.
    """
    topology = places.topology
    all_of_them = topology.of(Kind.ZOOKEEPER, cluster=cluster)
    served = {bookie.region for bookie in topology.of(Kind.BOOKIE, cluster=cluster)}
    near = [node for node in all_of_them if region is None or node.region == region or node.region not in served]
    return [places.of(node).at("client") for node in near or all_of_them]


def broker_settings(places: Places, node: Node) -> Settings:
    place, quorum = places.of(node), places.topology.quorum
    aware = str(places.topology.region_aware(node.cluster)).lower()
    interceptors = [GATEWAY_NEEDS["brokerEntryMetadataInterceptors"]] + [BROKER_TIMES] * places.topology.replicated
    return {
        **GATEWAY_NEEDS,
        **TOPIC_SETTINGS,
        "brokerEntryMetadataInterceptors": ",".join(interceptors),
        **metadata_urls(places, node.cluster, node.region),
        "clusterName": node.cluster,
        "advertisedAddress": place.host,
        "brokerServicePort": str(place.ports["client"]),
        "webServicePort": str(place.ports["http"]),
        "metadataStoreSessionTimeoutMillis": str(SESSION_TIMEOUT_MS),
        # A broker that reconnects may go on serving topics that other brokers have taken over meanwhile.
        "zookeeperSessionExpiredPolicy": "shutdown",
        "managedLedgerDefaultEnsembleSize": str(quorum.ensemble),
        "managedLedgerDefaultWriteQuorum": str(quorum.write),
        "managedLedgerDefaultAckQuorum": str(quorum.ack),
        "bookkeeperClientRegionawarePolicyEnabled": aware,
        "bookkeeperClientTimeoutInSeconds": str(BOOKIE_TIMEOUT_S),
        "bookkeeperClientHealthCheckIntervalSeconds": str(BOOKIE_CHECK_S),
        "bookkeeperClientHealthCheckErrorThresholdPerInterval": "1",
        "bookkeeperClientHealthCheckQuarantineTimeInSeconds": str(BOOKIE_QUARANTINE_S),
        "replicatedSubscriptionsSnapshotFrequencyMillis": str(SNAPSHOT_INTERVAL_MS),
        "functionsWorkerEnabled": "false",
    }


def _trusted(hosts: list[str]) -> list[str]:
    """Trusted networks: a proxy on loopback uses any loopback address; elsewhere its machine chooses the address."""
    try:
        on_loopback = all(ip_address(host).is_loopback for host in hosts)
    except ValueError:
        on_loopback = False
    return [LOOPBACK] if on_loopback else PRIVATE_NETWORKS


def gateway_sections(places: Places, node: Node) -> dict[str, dict[str, Any]]:
    """The sections of a gateway's TOML file. Clients connect through haproxy, which names them in a PROXY header."""
    place, topology = places.of(node), places.topology
    proxies = [places.of(each).host for each in topology.of(Kind.HAPROXY)]
    proxy = places.of(topology.of(Kind.HAPROXY, region=node.region)[0])
    tenant, namespace = topology.served.split("/")
    return {
        "kafka": {
            "host": place.host,
            "port": place.ports["client"],
            "proxy_protocol": True,
            "trusted_proxies": _trusted(proxies),
            "advertised_host": proxy.host,
            "advertised_port": proxy.ports["client"] + node.number,
        },
        "pulsar": {
            "service_url": places.service_url(node.cluster, first=node.region),
            "admin_url": places.admin_url(node.cluster, first=node.region),
            "tenant": tenant,
            "namespace": namespace,
        },
        "groups": {"mirror_replicated": topology.replicated},
        "http": {"host": place.host, "port": place.ports["http"]},
    }


def haproxy_text(places: Places, node: Node) -> str:
    """The bootstrap address, and one address after it for each gateway of the region."""
    gateways = [places.of(each) for each in places.topology.of(Kind.GATEWAY, region=node.region)]
    backends = [Backend(each.host, each.ports["client"], each.ports["http"]) for each in gateways]
    place = places.of(node)
    return haproxy_config(backends, place.host, place.ports["client"])
