"""Thousands of badly behaving clients: the gateway's memory stays bounded, and no acknowledged record is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.standalone import PulsarStandalone
from protocol.kafka.errors import ErrorCode
from protocol.kafka.records import Record, encode_batch
from tests.conformance.requests import produce_fields
from tests.integration.confluent import Sender, create_topic, read_all
from tests.integration.servers import lone_gateway_on, metric, running
from tests.support.async_client import connected
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import encode_request

MB = 1024 * 1024
CONTAINERS: dict[str, tuple[int, dict[str, Any]]] = {
    "default": (512, {}),
    "small": (384, {"client_memory_bytes": 160 * MB}),
}
"""By name: the MB that the kernel gives a gateway, without socket buffers, and its `[limits]`."""
HALF_SENT, SLOW_READERS, LARGE_PRODUCERS, IDLE = 1_500, 1_000, 100, 2_400
PRODUCING, PRODUCERS_OF_EACH = 50, 100
"""Clients that write one batch each as many idempotent producers, whose state is kept."""
FIRST_PRODUCER_ID = 2**41
PARTITIONS = 8
BATCH_BYTES = 900_000
LOAD_S = 10.0
CONNECT_AT_ONCE = 200


@pytest.fixture(params=CONTAINERS)
def memory(request: pytest.FixtureRequest) -> tuple[int, dict[str, Any]]:
    return CONTAINERS[request.param]


@pytest.fixture
def gateway(pulsar: PulsarStandalone, tmp_path: Path, memory: tuple[int, dict[str, Any]]) -> Iterator[GatewayProcess]:
    memory_mb, limits = memory
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with running(lone_gateway_on(pulsar, tmp_path, limits=limits)) as server:
        limit_memory(server.pid, memory_mb)
        yield server
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def status_mb(pid: int, name: str) -> float:
    """A line of its status: VmHWM is the maximum of resident memory so far."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def limit_memory(pid: int, memory_mb: int) -> None:
    """Above this, the process gets no more.

    RLIMIT_DATA counts memory that the process may write to, also what it has not touched yet, such as most of each
    thread's stack. It does not count the program's files. (A cgroup would count the kernel's socket buffers, too.)
    """
    untouched_mb = status_mb(pid, "VmData") - status_mb(pid, "RssAnon")
    limit = int((memory_mb - status_mb(pid, "RssFile") + untouched_mb) * MB)
    resource.prlimit(pid, resource.RLIMIT_DATA, (limit, limit))


def framed(api: str, version: int, fields: dict[str, Any]) -> bytes:
    frame = encode_request(api, version, fields)
    return len(frame).to_bytes(4, "big") + frame


def produce(topic: str, partition: int) -> bytes:
    batch = bytes(encode_batch([Record(0, 1_000, None, os.urandom(BATCH_BYTES))], base_offset=0))
    rows = [{"index": partition, "records": batch}]
    fields = {"transactional_id": None, "acks": -1, "timeout_ms": 30_000,
              "topic_data": [{"name": topic, "partition_data": rows}]}  # fmt: skip
    return framed("Produce", 9, fields)


def fetch(topic: str, partition: int, offset: int) -> bytes:
    row = {"partition": partition, "current_leader_epoch": -1, "fetch_offset": offset, "last_fetched_epoch": -1,
           "log_start_offset": -1, "partition_max_bytes": 8 * MB}  # fmt: skip
    fields = {
        "replica_id": -1, "max_wait_ms": 500, "min_bytes": 1, "max_bytes": 50 * MB, "isolation_level": 0,
        "session_id": 0, "session_epoch": -1, "topics": [{"topic": topic, "partitions": [row]}],
        "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
    return framed("Fetch", 12, fields)


class Mob:
    """Badly behaving clients. The gateway may close their connections; they do not reconnect."""

    def __init__(self, gateway: GatewayProcess, topic: str, crowded: str, partitions: int) -> None:
        """Thousands of producers write to `crowded`, the others to `topic`."""
        self.acknowledged: set[bytes] = set()
        """Values in `crowded`."""
        self._bootstrap = gateway.bootstrap
        self._host, port = gateway.bootstrap.split(":")
        self._port = int(port)
        self._topic, self._crowded, self._partitions = topic, crowded, partitions
        self._gate = asyncio.Semaphore(CONNECT_AT_ONCE)

    async def riot(self) -> None:
        kinds = (
            (HALF_SENT, self._send_half), (SLOW_READERS, self._read_nothing), (IDLE, self._idle),
            (LARGE_PRODUCERS, self._produce_without_reading), (PRODUCING, self._be_many_producers),
        )  # fmt: skip
        members = [kind(number) for count, kind in kinds for number in range(count)]
        random.Random(7).shuffle(members)
        ended = await asyncio.gather(*members, return_exceptions=True)
        unexpected = [each for each in ended if each is not None and not isinstance(each, OSError | EOFError)]
        assert not unexpected, unexpected

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[asyncio.StreamWriter]:
        async with self._gate:
            _, writer = await asyncio.open_connection(self._host, self._port, limit=1)
        try:
            yield writer
        finally:
            writer.transport.abort()

    async def _send_half(self, number: int) -> None:
        """A part of a request that announces a large size."""
        async with self._connected() as writer:
            writer.write((50 * MB).to_bytes(4, "big") + b"\0" * 200_000)
            await asyncio.sleep(LOAD_S)

    async def _read_nothing(self, number: int) -> None:
        async with self._connected() as writer:
            writer.write(b"".join(fetch(self._topic, number % self._partitions, offset) for offset in range(8)))
            await asyncio.sleep(LOAD_S)

    async def _produce_without_reading(self, number: int) -> None:
        async with self._connected() as writer, asyncio.timeout(LOAD_S):
            for _ in range(4):
                writer.write(produce(self._topic, number % self._partitions))
                await writer.drain()
            await asyncio.sleep(LOAD_S)

    async def _be_many_producers(self, number: int) -> None:
        """Does not end earlier than it has written, unless it is disconnected."""
        async with contextlib.AsyncExitStack() as stack:
            async with self._gate:
                client = await stack.enter_async_context(connected(self._bootstrap))
            for producer in range(PRODUCERS_OF_EACH):
                value = b"%d-%d" % (number, producer)
                identity = FIRST_PRODUCER_ID + number * PRODUCERS_OF_EACH + producer
                data = encode_batch(
                    [Record(0, 1_000, None, value)], producer_id=identity, producer_epoch=0, base_sequence=0
                )
                topics: dict[str, dict[int, bytes | None]] = {self._crowded: {number % self._partitions: bytes(data)}}
                answer = await client.call("Produce", 9, **produce_fields(9, topics, timeout_ms=30_000))
                [row] = answer["responses"][0]["partition_responses"]
                if row["error_code"] == ErrorCode.NONE:
                    self.acknowledged.add(value)

    async def _idle(self, number: int) -> None:
        async with self._connected():
            await asyncio.sleep(LOAD_S)


def test_memory_is_bounded_whatever_clients_do(gateway: GatewayProcess, memory: tuple[int, dict[str, Any]]) -> None:
    topic, crowded, watched = (unique_topic(name) for name in ("mob", "crowded", "watched"))
    for name in topic, crowded:
        create_topic(gateway.bootstrap, name, PARTITIONS)
    create_topic(gateway.bootstrap, watched)
    sender = Sender(gateway.bootstrap, watched, enable_idempotence=True)
    mob = Mob(gateway, topic, crowded, PARTITIONS)

    async def run() -> None:
        riot = asyncio.create_task(mob.riot())
        number = 0
        while not riot.done():
            sender.send([f"{number}".encode()])
            number += 1
            await asyncio.sleep(0.02)
        await riot

    asyncio.run(run())
    sender.flush()
    assert sender.errors == []
    assert sorted(read_all(gateway.bootstrap, watched)) == sorted(sender.sent)
    written = [value for partition in range(PARTITIONS) for value in read_all(gateway.bootstrap, crowded, partition)]
    assert len(written) == len(set(written))
    assert mob.acknowledged <= set(written)
    assert len(mob.acknowledged) > PRODUCING * PRODUCERS_OF_EACH / 2
    assert gateway.running
    assert status_mb(gateway.pid, "VmHWM") < memory[0]
    assert metric(gateway, "kafka_gateway_unexpected_failures_total") == 0
