"""How much the event loop works before it answers one tenant, while another one floods: `tests.bench.inside`'s scene,
so no Pulsar, no socket and no other program takes part.

The flood is there at once in every turn of the event loop, as the sockets of many clients that are all readable. The
request of the quiet tenant comes at any place among them.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from gateway.clusters.services import ClusterServices, ProcessParts
from gateway.config.gateway_config import Config
from gateway.dispatch import Dispatcher, ServedCluster
from gateway.garbage_collection import GarbageCollection
from gateway.log.shared import Shared
from gateway.network.connection import KafkaConnection
from gateway.network.server import KafkaServer
from gateway.observability.metrics import Metrics
from gateway.pulsar.admin.client import AdminClient
from gateway.requests.context import Listener, Principal
from tests.bench.inside.broker import FakeAdminTopics, FakeBroker
from tests.bench.inside.scene import ANSWERED_S, FLEET, FakeClient, LocalClient, LocalFleet
from tests.bench.loads.frames import FetchFrames, LoadError, ProduceFrames, record_batch
from tests.bench.loads.meter import Result, latencies
from tests.support.raw_client import encode_request

QUIET, FLOOD = Listener("quiet"), Listener("flood")
TOPIC = "records"
BATCH_RECORDS = 160
METADATA_TOPICS = 100
FETCH_BYTES = 1 << 20
REQUESTS = 400
"""Of the quiet tenant, for each figure."""
WARM_UP_TURNS = 50
SEED = 3


class Flood(NamedTuple):
    connections: int
    pipelined: int
    """Requests of a connection that are sent together, when the last ones are answered."""
    request: Callable[[], bytes]
    reconnects: bool = False
    """After the answers."""


def _framed(api: str, version: int, **fields: Any) -> bytes:
    payload = encode_request(api, version, fields)
    return len(payload).to_bytes(4, "big") + payload


def _metadata() -> bytes:
    return _framed("Metadata", 1, topics=[{"name": f"many-{number}"} for number in range(METADATA_TOPICS)])


def _produce(records: int) -> bytes:
    return b"".join(ProduceFrames(TOPIC, record_batch(records)).request(0))


def _fetch() -> bytes:
    return FetchFrames(TOPIC, max_bytes=FETCH_BYTES, max_wait_ms=0).request(0, 0)


FLOODS = {
    "produce": Flood(200, 5, lambda: _produce(BATCH_RECORDS)),
    "fetch": Flood(200, 1, _fetch),
    "metadata": Flood(40, 50, _metadata),
    "connections": Flood(200, 1, lambda: _framed("ApiVersions", 0), reconnects=True),
}


class TenantScene:
    """A gateway with two clusters. Made in the event loop that it uses."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self._topics = FakeAdminTopics(self.broker)
        self._admin = cast(AdminClient, SimpleNamespace(topics=self._topics))
        self._metrics = Metrics()
        config = _config("own")
        self._client = LocalClient(config, self.broker)
        self.fleet = LocalFleet(self._client, self._admin, config)
        self._shared = Shared(
            self._client, self._admin, config.limits, self._metrics, self.fleet.may_send_idempotent, self.fleet
        )
        served = {each.name: self._services(each.name).served for each in (QUIET, FLOOD)}
        own = self._services("own").served
        self.server = KafkaServer(config, Dispatcher(*own[:-1], own.meter, _Entrance(served)), self._metrics)
        for name in (TOPIC, *(f"many-{number}" for number in range(METADATA_TOPICS))):
            for each in served:
                self._topics.partitions[f"persistent://{_config(each).pulsar.full_namespace}/{name}"] = 1

    def _services(self, namespace: str) -> ClusterServices:
        parts = ProcessParts(self._client, self._admin, self._shared, None, self._metrics)
        return ClusterServices(_config(namespace), self.fleet, parts)


def _config(namespace: str) -> Config:
    return Config.model_validate({"fleet": FLEET, "pulsar": {"namespace": namespace}})


class _Entrance:
    """Each listener has a cluster."""

    def __init__(self, served: dict[str, ServedCluster]) -> None:
        self._served = served

    async def enter(
        self, listener: Listener, principal: Principal, asked: str | None, *, is_own_user: bool = False
    ) -> ServedCluster:
        return self._served[listener.name]

    async def home(self, listener: Listener, user: str) -> ServedCluster | None:
        return None


class Clock:
    """The processor time that the gateway has used. The time of the bench itself is not counted."""

    def __init__(self) -> None:
        self._used_s = 0.0
        self._begun_s: float | None = None

    def now_s(self) -> float:
        return self._used_s + (0.0 if self._begun_s is None else time.thread_time() - self._begun_s)

    def __enter__(self) -> None:
        self._begun_s = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self._used_s, self._begun_s = self.now_s(), None


class PausingClient(FakeClient):
    """Sends nothing while the gateway does not read, or while answers are missing."""

    def __init__(self, connection: KafkaConnection, clock: Clock) -> None:
        self.is_read = True
        self.awaited = 0
        """Answers."""
        self.answered_s = 0.0
        """When the last of them came."""
        self._clock = clock
        super().__init__(connection)

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.answered_s = self._clock.now_s()
        super().writelines(list_of_data)

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def take(self) -> None:
        """Count what has come."""
        received, self.received = self.received, []
        if self.closed:
            raise LoadError("the gateway has closed a connection")
        self.awaited -= _frames(received)


def _frames(received: list[Any]) -> int:
    """Answers are written whole."""
    count, left = 0, 0
    for buffer in received:
        view = memoryview(buffer)
        while view:
            if not left:
                left = 4 + int.from_bytes(view[:4], "big")
                count += 1
            size = min(left, len(view))
            view, left = view[size:], left - size
    return count


class Trial:
    """One quiet client beside a flood, or alone."""

    def __init__(self, scene: TenantScene, flood: Flood | None) -> None:
        self._scene = scene
        self._clock = Clock()
        self._flood = flood
        self._burst = b"" if flood is None else flood.request() * flood.pipelined
        self._clients: list[PausingClient] = []
        self._quiet = self._connect(QUIET)
        self._frames = ProduceFrames(TOPIC, record_batch(1))
        self._random = random.Random(SEED)

    def _connect(self, listener: Listener) -> PausingClient:
        with self._clock:
            return PausingClient(KafkaConnection(self._scene.server, listener), self._clock)

    async def run(self) -> Result:
        """p50 and p99, ms of processor time."""
        request = b"".join(self._frames.request(0))
        await self._open(request)
        waited_s = [await self._answered(request) for _ in range(REQUESTS)]
        for client in self._clients:
            client.close()
        self._quiet.close()
        await asyncio.sleep(0)
        return latencies(waited_s)

    async def _open(self, request: bytes) -> None:
        """Of both clusters, the log; the flood goes on for a while before the first request counts."""
        first = self._connect(FLOOD)
        async with asyncio.timeout(ANSWERED_S):
            opening = [(first, request), (self._quiet, request), (first, self._burst)]
            for client, data in opening[: 2 if self._flood is None else 3]:
                client.awaited = _frames([data])
                client.ask(data)
                while client.awaited:
                    await self._turn([])
                    client.take()
            first.close()
            for _ in range(WARM_UP_TURNS):
                await self._turn(self._readable())

    async def _answered(self, request: bytes) -> float:
        quiet = self._quiet
        self._scene.fleet.beat()
        readable = self._readable()
        readable.insert(self._random.randrange(len(readable) + 1), (quiet, request))
        quiet.awaited = 1
        async with asyncio.timeout(ANSWERED_S):
            while quiet.awaited:
                await self._turn(readable)
                readable = self._readable()
                if quiet.received:
                    self._frames.base_offset(memoryview(b"".join(quiet.received)))
                quiet.take()
        return quiet.answered_s - self._asked_s

    def _readable(self) -> list[tuple[PausingClient, bytes]]:
        """The clients of the flood whose sockets have something."""
        flood = self._flood
        if flood is None:
            return []
        for client in self._clients:
            client.take()
        if flood.reconnects:
            for client in self._clients:
                if not client.awaited and client.answered_s:
                    with self._clock:
                        client.close()
            self._clients = [client for client in self._clients if not client.closed]
        missing = flood.connections - len(self._clients)
        # The event loop accepts one in a turn.
        self._clients += [self._connect(FLOOD) for _ in range(min(1, missing) if flood.reconnects else missing)]
        readable = [client for client in self._clients if client.is_read and not client.awaited]
        for client in readable:
            client.awaited = flood.pipelined
        return [(client, self._burst) for client in readable]

    async def _turn(self, readable: list[tuple[PausingClient, bytes]]) -> None:
        """Of the event loop. The broker confirms at once."""
        for client, data in readable:
            if client is self._quiet:
                self._asked_s = self._clock.now_s()
            with self._clock:
                client.ask(data)
        with self._clock:
            await asyncio.sleep(0)
        receipts = self._scene.broker.answers()
        if receipts:
            with self._clock:
                self._scene.broker.say(receipts)


async def waiting(flood: str) -> Result:
    """Of a flood by its name; with any other name there is none."""
    scene = TenantScene()
    GarbageCollection().start()
    return await Trial(scene, FLOODS.get(flood)).run()
