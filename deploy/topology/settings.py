"""The settings of each process of a topology, for files and for containers alike.

Data directories and ways to listen are added by whoever starts the processes.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from deploy.haproxy.config import Backend, haproxy_config
from deploy.topology.description import Kind, Node
from deploy.topology.places import Places

SESSION_TIMEOUT_MS = 10_000
"""A broker or bookie that ZooKeeper has not heard of for so long is dead: others take over what it had."""
TICK_MS = 1_000
BOOKIE_TIMEOUT_S = 5
"""An unanswered write goes to another bookie after this: one that stands still, or a region that is cut off."""
BOOKIE_CHECK_S = 5
"""How often those that left writes unanswered are looked for, by default each minute: as long as a broker tries them in
turn, writes stand still."""
BOOKIE_QUARANTINE_S = 30
"""They get no new ledger for so long, by default half an hour. Meanwhile all copies may be in one region."""
RECOVERY_PAUSE_MS = 10_000
"""Before a ledger that could not be copied, or is still written, is tried again; by default minutes."""
NEXT_LEDGER_MS = 100
"""Before the next ledger is tried, when one could not be copied, or is still written. By default 5 s: of those that are
still written there are many, and one that could be copied comes behind them."""
SNAPSHOT_INTERVAL_MS = 1_000
"""Between two moments that replicated subscriptions can be carried over at."""

BOOKIE_READS = {"readBufferSizeBytes": str(64 * 1024)}
"""A bookie that is told nothing reads its entry logs by 512 bytes: 2,000 system calls for a megabyte."""

GATEWAY_NEEDS = {
    "brokerEntryMetadataInterceptors": "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
    "exposingBrokerEntryMetadataToClientEnabled": "true",
}
"""What the gateway needs of any broker."""

TOPIC_SETTINGS = {
    "topicLevelPoliciesEnabled": "true",
    "systemTopicEnabled": "true",
    "allowAutoTopicCreation": "false",
}
"""Kafka's topic configurations are topic-level policies, which are kept in system topics.

A topic exists because somebody created it, never because a client named it.
"""

Settings = dict[str, str]


def zookeeper_settings(places: Places, node: Node) -> Settings:
    """Those of an ensemble, if the cluster has several."""
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
        # Not as metadataServiceUri, in which Pulsar's racks are not looked for.
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
"""Where containers are that are known by name only."""
_REGION_AWARE = "org.apache.bookkeeper.client.RegionAwareEnsemblePlacementPolicy"


def metadata_urls(places: Places, cluster: str, region: str | None = None) -> Settings:
    """Each cluster has its own, configuration too: it does not need another one to live."""
    url = f"zk:{','.join(_near_zookeepers(places, cluster, region))}"
    return {"metadataStoreUrl": url, "configurationMetadataStoreUrl": url}


def _near_zookeepers(places: Places, cluster: str, region: str | None) -> list[str]:
    """Those of the region and of mere witnesses, or all if there are none.

    A session with a server of the other region would be lost with that region, before it could move to a server here.
    """
    topology = places.topology
    all_of_them = topology.of(Kind.ZOOKEEPER, cluster=cluster)
    served = {bookie.region for bookie in topology.of(Kind.BOOKIE, cluster=cluster)}
    near = [node for node in all_of_them if region is None or node.region == region or node.region not in served]
    return [places.of(node).at("client") for node in near or all_of_them]


def broker_settings(places: Places, node: Node) -> Settings:
    place, quorum = places.of(node), places.topology.quorum
    aware = str(places.topology.region_aware(node.cluster)).lower()
    return {
        **GATEWAY_NEEDS,
        **TOPIC_SETTINGS,
        **metadata_urls(places, node.cluster, node.region),
        "clusterName": node.cluster,
        "advertisedAddress": place.host,
        "brokerServicePort": str(place.ports["client"]),
        "webServicePort": str(place.ports["http"]),
        "metadataStoreSessionTimeoutMillis": str(SESSION_TIMEOUT_MS),
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
    """A proxy on loopback comes from any address of it, and elsewhere from that which its machine chooses."""
    try:
        on_loopback = all(ip_address(host).is_loopback for host in hosts)
    except ValueError:
        on_loopback = False
    return [LOOPBACK] if on_loopback else PRIVATE_NETWORKS


def gateway_sections(places: Places, node: Node) -> dict[str, dict[str, Any]]:
    """Of its TOML file. Clients come by haproxy, which names them."""
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
    """The address where clients begin, and one behind it for each gateway of the region."""
    gateways = [places.of(each) for each in places.topology.of(Kind.GATEWAY, region=node.region)]
    backends = [Backend(each.host, each.ports["client"], each.ports["http"]) for each in gateways]
    place = places.of(node)
    return haproxy_config(backends, place.host, place.ports["client"])
