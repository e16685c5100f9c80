"""A topology as processes of this machine, with what a trial needs: clients by region, brokers, faults."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from deploy.local.cluster.cluster import LocalCluster
from deploy.topology.description import Kind, Node, load
from deploy.topology.places import Place
from deploy.topology.setup import AdminApi, SetupError, move_to_primary_regions
from gateway.topics.topic_names import INTERNAL_TOPICS
from tests.integration.confluent import TIMEOUT_S, Sender, list_topics
from tests.regions.network import PREFIX, Network
from tests.support.traffic.history import Write

WAIT_S = 120.0
POLL_S = 0.1


class Lab:
    """`eu` and `us` are regions, or clusters with these names. Without a `network`, nodes cannot be cut off."""

    def __init__(self, cluster: LocalCluster, network: Network | None = None) -> None:
        self.cluster = cluster
        self.network = network
        self.topology = cluster.topology
        self.places = cluster.places
        self.namespace = cluster.topology.served
        self.system_namespace = cluster.topology.system_namespace

    @property
    def regions(self) -> list[str]:
        """Those that clients use."""
        return [region for region in self.topology.regions if self.topology.of(Kind.GATEWAY, region=region)]

    def bootstrap(self, first: str) -> str:
        """The bootstrap addresses of clients in a region: its haproxy first, then the others."""
        return self.places.bootstrap(first=first)

    def only(self, region: str) -> str:
        return self.places.of(self.topology.of(Kind.HAPROXY, region=region)[0]).at()

    def broker(self, region: str) -> Place:
        """A broker of the region, of the cluster that its gateways serve."""
        cluster = self.topology.of(Kind.GATEWAY, region=region)[0].cluster
        return self.places.of(self.topology.of(Kind.BROKER, cluster=cluster, region=region)[0])

    def admin(self, region: str) -> AdminApi:
        return AdminApi(self.broker(region))

    def internal_stats(self, region: str, topic: str, partition: int = 0) -> dict[str, Any]:
        """Statistics of a partition. Any broker of the region redirects to the broker that serves it."""
        address = self.broker(region).at("http")
        path = f"/admin/v2/persistent/{self.namespace}/{topic}-partition-{partition}/internalStats"
        for _ in range(3):
            connection = http.client.HTTPConnection(address, timeout=10)
            try:
                connection.request("GET", path)
                response = connection.getresponse()
                body = response.read()
            finally:
                connection.close()
            if response.status == 307:
                address, path = response.headers["Location"].removeprefix("http://").split("/", 1)
                path = f"/{path}"
                continue
            assert response.status == 200, body
            found: dict[str, Any] = json.loads(body)
            return found
        raise AssertionError(f"nobody serves {topic}")

    def unload(self, topic: str) -> None:
        """Unload partition 0 at the broker that serves it."""
        for broker in self.topology.of(Kind.BROKER):
            with contextlib.suppress(SetupError):  # the broker redirects
                AdminApi(self.places.of(broker)).call("PUT", f"persistent/{self.namespace}/{topic}-partition-0/unload")

    def partitions(self, region: str, topic: str) -> int:
        namespace = self.system_namespace if topic in INTERNAL_TOPICS else self.namespace
        return int(self.admin(region).call("GET", f"persistent/{namespace}/{topic}/partitions")["partitions"])

    def serving_broker(self, topic: str) -> Node:
        """The broker that serves partition 0, according to the first broker that answers."""
        found: list[Node] = []

        def ask() -> bool:
            for broker in self.topology.of(Kind.BROKER):
                if self.running(broker.name) and (url := self._look_up(broker, topic)) is not None:
                    found.extend(node for node in self.topology.of(Kind.BROKER) if self.places.of(node).at() == url)
                    return True
            return False

        until(ask, f"a broker knows who serves {topic}")
        return found[0]

    def _look_up(self, broker: Node, topic: str) -> str | None:
        """host:port of the broker that serves the topic; None if this broker has no session with ZooKeeper."""
        connection = http.client.HTTPConnection(self.places.of(broker).at("http"), timeout=10)
        try:
            connection.request("GET", f"/lookup/v2/topic/persistent/{self.namespace}/{topic}-partition-0")
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        return str(json.loads(body)["brokerUrl"]).removeprefix("pulsar://") if response.status == 200 else None

    def leading_gateway(self, topic: str) -> Node:
        """The leader of partition 0, identified by the region of the haproxy that it advertises."""
        brokers = list_topics(self.bootstrap("eu"), topic)
        address = brokers.brokers[brokers.topics[topic].partitions[0].leader].host
        proxy = next(node for node in self.topology.of(Kind.HAPROXY) if self.places.of(node).host == address)
        return self.topology.of(Kind.GATEWAY, region=proxy.region)[0]

    def serving_region(self, topic: str) -> str:
        return self.serving_broker(topic).region

    def other_region(self, region: str) -> str:
        return "us" if region == "eu" else "eu"

    def gateways(self) -> dict[str, str]:
        """The gateways' own addresses, without haproxy, by name."""
        return {node.name: self.places.of(node).at() for node in self.topology.of(Kind.GATEWAY)}

    @contextmanager
    def paused(self, target: str) -> Iterator[None]:
        """Suspend a node or a region during the block."""
        self.cluster.signal(target, signal.SIGSTOP)
        try:
            yield
        finally:
            self.cluster.signal(target, signal.SIGCONT)

    def cut(self, some: Callable[[Node], bool], others: Callable[[Node], bool]) -> AbstractContextManager[None]:
        """Drop all packets between the two groups of nodes during the block. Clients reach all nodes."""
        assert self.network is not None, "only a network of our own can be cut"
        nodes = self.topology.nodes
        return self.network.cut(filter(some, nodes), filter(others, nodes))

    def cut_between(self, region: str, other: str) -> AbstractContextManager[None]:
        return self.cut(lambda node: node.region == region, lambda node: node.region == other)

    def start_ended(self) -> None:
        """Start processes that have ended, as a supervisor would: bookies end when ZooKeeper considers them dead.

        Raises StartError while their ZooKeeper has no quorum; the caller may retry.
        """
        for region in self.topology.regions:
            self.cluster.start(region)

    def bring_home(self, topic: str) -> None:
        """Let the primary region serve the topic again: entries written in the meantime have copies in the other region
        only."""
        primary = self.topology.namespaces[self.namespace].primary
        if primary not in (None, self.serving_region(topic)):
            move_to_primary_regions(self.places)
            until(lambda: self.serving_region(topic) == primary, f"the namespace is served from {primary}")

    def are_all_registered(self) -> bool:
        """Every broker knows all brokers of its cluster."""
        for broker in self.topology.of(Kind.BROKER):
            known = AdminApi(self.places.of(broker)).call("GET", f"brokers/{broker.cluster}")
            if len(known) < len(self.topology.of(Kind.BROKER, cluster=broker.cluster)):
                return False
        return True

    def running(self, name: str) -> bool:
        return any(state.pid is not None for state in self.cluster.states() if state.node.name == name)


@contextmanager
def topology(name: str, folder: Path, *, networked: bool = False) -> Iterator[Lab]:
    """Started for the block, then deleted. Its processes end with this process in any case."""
    described = load(name)
    network = Network(described) if networked else None
    if network is None:
        cluster = LocalCluster(described, folder / name, bound=True)
    else:
        network.connect()
        cluster = LocalCluster(described, folder / name, bound=True, network=PREFIX, enter=network.enter)
    try:
        cluster.up()
        yield Lab(cluster, network)
    finally:
        cluster.delete()
        if network is not None:
            network.disconnect()


def until(condition: Callable[[], Any], what: str, timeout_s: float = WAIT_S) -> float:
    """Seconds until the condition was true. Exceptions count as false: brokers fail and return during a trial."""
    start = time.monotonic()
    failure: Exception | None = None
    while time.monotonic() - start < timeout_s:
        try:
            if condition():
                return time.monotonic() - start
        except Exception as error:
            failure = error
        time.sleep(POLL_S)
    raise AssertionError(f"{what}: not within {timeout_s:.0f} s ({failure!r})")


class Writer:
    """Writes numbered values to every partition of a topic, one at a time for each partition: NAME-PARTITION-NUMBER."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str = "w", **config: Any) -> None:
        self._name = name
        self._next = 0
        options = {"retry_backoff_ms": 50, "message_timeout_ms": int(WAIT_S * 1000), **config}
        self.senders = [Sender(bootstrap, topic, partition=number, **options) for number in range(partitions)]

    def write(self, seconds: float, per_second: int = 50) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.write_one()
            time.sleep(1 / per_second)

    def write_one(self) -> None:
        for partition, sender in enumerate(self.senders):
            sender.send([self._value(partition, self._next)])
        self._next += 1

    def _value(self, partition: int, number: int) -> bytes:
        return f"{self._name}-{partition}-{number}".encode()

    @property
    def offsets(self) -> dict[bytes, int]:
        """The offset of each acknowledged value."""
        return {value: offset for sender in self.senders for value, offset in sender.offsets.items()}

    @property
    def unplaced(self) -> set[bytes]:
        """Values that were acknowledged without an offset."""
        return {value for sender in self.senders for value in sender.unplaced}

    @property
    def writes(self) -> list[Write]:
        return [write for sender in self.senders for write in sender.writes]

    @property
    def acknowledged(self) -> list[int]:
        return [sender.acknowledged for sender in self.senders]

    def write_until_acknowledged_anew(self, timeout_s: float = WAIT_S) -> float:
        """Write until every partition has acknowledged a value that was sent after this call. Returns the seconds."""
        wanted = [self._value(partition, self._next) for partition in range(len(self.senders))]
        start = time.monotonic()
        while sum(self.acknowledged) == 0 or not self.offsets.keys() | self.unplaced >= set(wanted):
            assert time.monotonic() - start < timeout_s, f"nothing was acknowledged within {timeout_s:.0f} s"
            self.write(0.1)
        return time.monotonic() - start

    def flush(self, timeout_s: float = TIMEOUT_S) -> None:
        for sender in self.senders:
            sender.flush(timeout_s)

    def abandon(self) -> None:
        """Drop the values that are not acknowledged yet."""
        for sender in self.senders:
            sender.purge()

    def check_no_errors(self) -> None:
        errors = [error for sender in self.senders for error in sender.errors]
        assert not errors, f"{len(errors)} records were not acknowledged: {errors[0]}"
