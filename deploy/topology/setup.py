"""Sets up the clusters of a topology when they run: replication, racks, tenants, namespaces, isolation policies.

`python -m deploy.topology.setup NAME` does it where every node has a host of its name. It may run again and changes
nothing then.
"""

from __future__ import annotations

import http.client
import json
import re
import sys
import time
from typing import Any

from deploy.topology.description import Kind, Topology, load
from deploy.topology.places import Place, Places, by_host_name

TIMEOUT_S = 30.0
READY_TIMEOUT_S = 180.0
PAUSE_S = 0.5
CONFLICT = 409
RETENTION_MINUTES = 7 * 24 * 60


class SetupError(RuntimeError):
    """A broker refused a request, or no broker answered in time."""


class AdminApi:
    """Pulsar's admin API, of one broker."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def call(self, method: str, path: str, body: object = None) -> Any:
        """The JSON response, None if it is empty. An object that exists already is no error. Raises SetupError and
        OSError."""
        connection = http.client.HTTPConnection(self._place.at("http"), timeout=TIMEOUT_S)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, f"/admin/v2/{path}", text, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
        except http.client.HTTPException as error:
            raise OSError(f"{self._place.at('http')}: {error!r}") from error
        finally:
            connection.close()
        if response.status >= 300 and response.status != CONFLICT:
            raise SetupError(f"{method} {path}: {response.status} {answer.decode(errors='replace')[:300]}")
        return json.loads(answer) if answer.startswith((b"[", b"{")) else None


def set_up(places: Places, timeout_s: float = READY_TIMEOUT_S) -> None:
    """Set up all clusters. Raises SetupError."""
    deadline = time.monotonic() + timeout_s
    for cluster in places.topology.clusters:
        while True:
            admin = _ready_broker(places, cluster, deadline)
            try:
                _tell(places, cluster, admin)
                break
            except OSError as error:  # a broker that has just started may be slow, or stop again
                if time.monotonic() > deadline:
                    raise SetupError(f"cluster {cluster} was not set up in time: {error}") from error


def _tell(places: Places, cluster: str, admin: AdminApi) -> None:
    _place_bookies(places, cluster, admin)
    _introduce_clusters(places, cluster, admin)
    _isolate(places, cluster, admin)
    _create_namespaces(places.topology, cluster, admin)


def move_to_primary_regions(places: Places) -> None:
    """Let the primary regions serve their namespaces again; brokers do not move them back. Raises SetupError.

    Each namespace is unloaded and looked up again. Its topics have no leader for a moment.
    """
    for name, namespace in places.topology.all_namespaces.items():
        if namespace.primary is not None:
            for cluster in namespace.clusters:
                _ready_broker(places, cluster, time.monotonic()).call("PUT", f"namespaces/{name}/unload")


def _ready_broker(places: Places, cluster: str, deadline: float) -> AdminApi:
    brokers = places.topology.of(Kind.BROKER, cluster=cluster)
    while True:
        for broker in brokers:
            admin = AdminApi(places.of(broker))
            try:
                if admin.call("GET", f"brokers/{cluster}"):
                    return admin
                failure: Exception = SetupError(f"cluster {cluster} has no broker yet")
            except (OSError, SetupError) as error:
                failure = error
        if time.monotonic() > deadline:
            raise SetupError(f"no broker of cluster {cluster} answers: {failure}")
        time.sleep(PAUSE_S)


def _place_bookies(places: Places, cluster: str, admin: AdminApi) -> None:
    """Set the racks of bookies that have none. Brokers need half a minute to learn of a change while bookies come and
    go."""
    known = (admin.call("GET", "bookies/racks-info") or {}).get("default", {})
    for bookie in places.topology.of(Kind.BOOKIE, cluster=cluster):
        address, rack = places.of(bookie).at(), places.topology.rack(bookie)
        if known.get(address, {}).get("rack") != rack:
            admin.call("POST", f"bookies/racks-info/{address}?group=default", {"rack": rack})


def _introduce_clusters(places: Places, cluster: str, admin: AdminApi) -> None:
    for other in places.topology.clusters:
        if other != cluster:
            urls = {"serviceUrl": places.admin_url(other), "brokerServiceUrl": places.service_url(other)}
            admin.call("PUT", f"clusters/{other}", urls)


def _isolate(places: Places, cluster: str, admin: AdminApi) -> None:
    """A namespace with a primary region is served there while one of its brokers lives, and anywhere otherwise."""
    for name, namespace in places.topology.all_namespaces.items():
        if namespace.primary is None or cluster not in namespace.clusters:
            continue
        policy = {
            "namespaces": [re.escape(name)],
            "primary": _hosts(places, cluster, namespace.primary),
            "secondary": _hosts(places, cluster, None),
            "auto_failover_policy": {
                "policy_type": "min_available",
                "parameters": {"min_limit": "1", "usage_threshold": "100"},
            },
        }
        path = f"clusters/{cluster}/namespaceIsolationPolicies/{name.replace('/', '-')}"
        admin.call("POST", path, policy)


def _hosts(places: Places, cluster: str, region: str | None) -> list[str]:
    """The hosts as regular expressions."""
    brokers = places.topology.of(Kind.BROKER, cluster=cluster, region=region)
    return [re.escape(places.of(broker).host) for broker in brokers]


def _create_namespaces(topology: Topology, cluster: str, admin: AdminApi) -> None:
    """Namespaces keep data and topics without subscriptions, as a Kafka log must."""
    for name, namespace in topology.all_namespaces.items():
        if cluster not in namespace.clusters:
            continue
        admin.call("PUT", f"tenants/{name.split('/')[0]}", {"allowedClusters": list(namespace.clusters)})
        policies: dict[str, object] = {
            "replication_clusters": list(namespace.clusters),
            "retention_policies": {"retentionTimeInMinutes": RETENTION_MINUTES, "retentionSizeInMB": -1},
            "message_ttl_in_seconds": RETENTION_MINUTES * 60,
            "inactive_topic_policies": {
                "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                "maxInactiveDurationSeconds": 60,
                "deleteWhileInactive": False,
            },
        }
        # When a failed cluster returns and sends messages again, brokers do not write them a second time.
        if len(namespace.clusters) > 1:
            policies["deduplicationEnabled"] = True
        admin.call("PUT", f"namespaces/{name}", policies)


if __name__ == "__main__":
    set_up(by_host_name(load(sys.argv[1])))
