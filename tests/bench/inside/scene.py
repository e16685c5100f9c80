"""A gateway in this process, without sockets: its own parts from a client's bytes to its broker's and back.

Only the work of the gateway itself is measured, without the kernel, a load generator and Pulsar. So two commits can be
compared on a machine that has other work.
"""

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

from coordinator.fleet.membership import Identity, Membership
from coordinator.fleet.messages import Address, LogPosition
from gateway.clusters.services import ClusterServices, ProcessParts
from gateway.config.gateway_config import Config
from gateway.coordination.partition.log_trimming import LogTrimming
from gateway.dispatch import Dispatcher
from gateway.fleet.clock import lease_now_ms
from gateway.fleet.fleet import Fleet
from gateway.log.shared import Shared
from gateway.network.connection import KafkaConnection
from gateway.network.server import KafkaServer
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.pulsar.broker_address import BrokerAddress
from gateway.pulsar.client import PulsarClient
from gateway.pulsar.connection import Connection
from gateway.pulsar.producer import Producer
from gateway.pulsar.reader import Reader
from gateway.requests.cluster import Cluster
from gateway.requests.context import Listener
from gateway.topics.topic_names import CONSUMER_OFFSETS
from tests.bench.inside.broker import FakeAdminTopics, FakeBroker

FLEET = {"lease_ms": 600_000, "dead_after_ms": 700_000, "cut_off_ms": 800_000}
"""A profiler may slow down the scene a hundred times."""
PULSAR = {"keepalive_interval_ms": 86_400_000}
"""The broker answers only when the scene has a turn: others may have theirs for longer than a ping waits."""
TURNS = 3
"""Turns of the event loop until all input is processed: by the handler, by the log's writer, and by the socket."""
SINGLE_ADDRESS: dict[str, dict[str, Any]] = {
    "kafka": {"single_address": True},
    "fleet": FLEET | {"forwarding": {"host": "127.0.0.1", "port": 9094}},
}
"""The sections of a gateway that forwards."""
BUSY_TURNS = 100
"""After so many turns only a timer makes progress."""
ANSWERED_S = 120
"""Valgrind makes the first batch take a minute on a busy machine."""


class Scene:
    """Must be constructed in the event loop that it uses."""

    def __init__(self, broker: FakeBroker | None = None, **sections: Any) -> None:
        """`sections` are those of the configuration."""
        config = Config.model_validate({"fleet": FLEET, "pulsar": PULSAR, **sections})
        self._namespace = config.pulsar.full_namespace
        self._listener = Listener("default", single_address=config.kafka.single_address)
        self.broker = broker or FakeBroker()
        self._admin_topics = FakeAdminTopics(self.broker)
        admin = cast(AdminClient, SimpleNamespace(topics=self._admin_topics))
        metrics = Metrics()
        client = LocalClient(config, self.broker)
        self.fleet = LocalFleet(client, admin, config)
        shared = Shared(client, admin, config.limits, metrics, self.fleet.may_send_idempotent, self.fleet)
        self._services = ClusterServices(config, self.fleet, ProcessParts(client, admin, shared, None, metrics))
        self.server = KafkaServer(config, Dispatcher(*self._services.served), metrics)

    @property
    def cluster(self) -> Cluster:
        return self._services.served.cluster

    def add_topic(self, name: str, partitions: int = 1) -> None:
        """Add a topic."""
        self._admin_topics.partitions[f"persistent://{self._namespace}/{name}"] = partitions

    def pulsar_name(self, topic: str, partition: int = 0) -> str:
        """The name of a partition in Pulsar."""
        return f"persistent://{self._namespace}/{topic}-partition-{partition}"

    def connect(self) -> "FakeClient":
        return FakeClient(KafkaConnection(self.server, self._listener))

    async def lead_groups(self) -> None:
        """From now on this gateway coordinates all groups. Raises TimeoutError."""
        groups = self._services._groups
        groups._mirror = None  # there are no subscriptions to move
        partition = groups.coordinators._new_partition(self.pulsar_name(CONSUMER_OFFSETS), 0)
        partition._trimming = cast(LogTrimming, _NothingToTrim())
        groups.coordinators.partitions = [partition]
        partition.take()
        async with asyncio.timeout(ANSWERED_S):
            while not partition.tried.is_set():
                self.broker.say(self.broker.answers())
                await asyncio.sleep(0)

    async def run(self, turns: int = TURNS) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)

    async def until_answered(self, clients: "Iterable[FakeClient]") -> None:
        """The broker acknowledges immediately. Raises TimeoutError."""
        turns = 0
        await self.run(1)  # requests have a bounded part of a turn
        async with asyncio.timeout(ANSWERED_S):
            while not all(client.connection.idle for client in clients):
                self.broker.say(self.broker.answers())
                await asyncio.sleep(0 if turns < BUSY_TURNS else 0.001)
                turns += 1


class _NothingToTrim:
    """The trimming of a log that was empty before."""

    async def replay(self, *_: object) -> None: ...

    async def run(self, *_: object) -> None:
        await asyncio.Event().wait()


def feed(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    """Pass data to it like a socket."""
    left = memoryview(data)
    while left:
        buffer = cast(memoryview, protocol.get_buffer(-1))
        size = min(len(buffer), len(left))
        buffer[:size] = left[:size]
        left = left[size:]
        protocol.buffer_updated(size)


class FakeClient(asyncio.Transport):
    """The other end of one connection."""

    def __init__(self, connection: KafkaConnection) -> None:
        super().__init__({"peername": ("127.0.0.1", 50_000)})
        self.connection = connection
        self.received: list[Any] = []
        """The received buffers; the owner removes them from time to time."""
        self.writes = 0
        self.closed = False
        """The gateway has closed the connection."""
        connection.connection_made(self)

    def ask(self, data: bytes) -> None:
        """Pass data to the gateway like a socket: into the buffer that the connection provides."""
        feed(self.connection, data)

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.writes += 1
        self.received += list_of_data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no limit."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        """The client sends only what the scene says."""

    def resume_reading(self) -> None:
        """Like `pause_reading`."""

    def close(self) -> None:
        self.closed = True
        asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    abort = close


class LocalFleet(Fleet):
    """A fleet with this gateway as the only member, which has joined. Nothing is written to or read from a log."""

    def __init__(self, client: PulsarClient, admin: AdminClient, config: Config) -> None:
        super().__init__(client, admin, config.pulsar.full_namespace, config.fleet)
        identity = Identity(0, "scene", {"default": Address(host="127.0.0.1", port=9092)}, 0)
        self._membership = Membership(identity, config.fleet.times, lambda: "incarnation", lease_now_ms())
        self._entry_id = 0
        self.beat()

    def beat(self) -> None:
        """Renew the lease; to be called from time to time."""
        assert self._membership is not None
        now_ms = lease_now_ms()
        for message in self._membership.due(now_ms):
            self._entry_id += 1
            self._membership.read(LogPosition(0, self._entry_id), message, now_ms)


class LocalClient(PulsarClient):
    """A client with one broker, and a connection to it that is open already."""

    def __init__(self, config: Config, broker: FakeBroker) -> None:
        super().__init__(config.pulsar)
        self._only = Connection(BrokerAddress("pulsar://broker:6650"), config.pulsar, self.connections)
        broker.connection = self._only
        self._only.connection_made(broker)

    async def open_producer(self, topic: str, listener: Any, **options: Any) -> Producer:
        producer = Producer(topic, self._only, listener, owns_connection=False)
        await producer.open(fencing=False, properties=(), predecessor=None, name=options.get("name", ""))
        return producer

    async def open_reader(self, topic: str, start: Any, listener: Any, **options: Any) -> Reader:
        reader = Reader(topic, self._only, listener)
        await reader.open(start, inclusive=True, read_compacted=False)
        return reader
