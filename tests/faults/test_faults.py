"""Killed gateways, a killed and a suspended Pulsar, clients that misbehave: nothing is lost, other clients are served.
"""

import os
import random
import resource
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import (
    Record,
    Sender,
    assigned,
    consume,
    create_topic,
    offsets_of,
    produce,
    read_all,
    take,
    watermarks,
)
from tests.integration.native import wait_for
from tests.integration.servers import gateway_on, lone_gateway_on, metric, resident_bytes, running
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import RawClient

MIB = 1024 * 1024
ENDS = 3
IDLE_CONNECTIONS = 10_000
SPARE_FILES = 500
"""Files of the process's limit that remain for the tests themselves."""
BYTES_PER_IDLE_CONNECTION = 16 * 1024
PAUSE_S = 5.0
RECOVERY_S = 150.0
SECOND_S = 1_000


@pytest.fixture(scope="module")
def own_pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarStandalone]:
    """Tests may kill and suspend it. It is running and ready when a test ends."""
    with running(PulsarStandalone(tmp_path_factory.mktemp("own-pulsar"))) as server:
        yield server


@pytest.fixture
def own_gateway(own_pulsar: PulsarStandalone, tmp_path: Path) -> Iterator[GatewayProcess]:
    with running(gateway_on(own_pulsar, tmp_path / "gateway")) as server:
        yield server


@pytest.fixture
def topic(gateway: GatewayProcess) -> str:
    name = unique_topic("faults")
    create_topic(gateway.bootstrap, name)
    return name


class Traffic:
    """One producer with acks=all on a topic of its own, and the values that it sent."""

    def __init__(self, bootstrap: str, *, idempotent: bool) -> None:
        self._bootstrap = bootstrap
        self._idempotent = idempotent
        self._topic = unique_topic("idempotent" if idempotent else "plain")
        self._sent: list[bytes] = []
        self._acknowledged_before = 0
        create_topic(bootstrap, self._topic)
        self._sender = Sender(
            bootstrap, self._topic, enable_idempotence=idempotent, acks="all", batch_num_messages=10,
            retry_backoff_ms=100, reconnect_backoff_max_ms=500,
        )  # fmt: skip

    def send(self) -> None:
        """Send 1,000 values without waiting."""
        values = [b"value %d" % (len(self._sent) + number) for number in range(1_000)]
        self._sent += values
        self._acknowledged_before = self._sender.acknowledged
        self._sender.send(values)

    def wait_for_progress(self) -> None:
        before = self._acknowledged_before
        wait_for(lambda: self._sender.acknowledged > before, "some more records are acknowledged", RECOVERY_S)

    def check(self, *, once: bool = False) -> None:
        """Every acknowledged record is at the offset of its response. With idempotence, the log has exactly what was
        sent. With `once`, the log of the other producer has it once, too, in any order."""
        self._sender.flush(RECOVERY_S)
        assert self._sender.errors == []
        log = read_all(self._bootstrap, self._topic)
        assert [log[offset] for offset in self._sender.offsets.values()] == [*self._sender.offsets]
        if self._idempotent:
            assert log == self._sent
        elif once:
            assert sorted(log) == sorted(self._sent)
        else:
            assert set(log) == set(self._sent)


def both_kinds(gateway: GatewayProcess) -> list[Traffic]:
    """A plain and an idempotent producer, for the same fault."""
    return [Traffic(gateway.bootstrap, idempotent=idempotent) for idempotent in (False, True)]


def send_all(traffic: list[Traffic]) -> None:
    """When this returns, some records of each producer are acknowledged, and most others are in flight."""
    for each in traffic:
        each.send()
    for each in traffic:
        each.wait_for_progress()


@pytest.mark.parametrize("end", [GatewayProcess.kill, GatewayProcess.stop], ids=["killed", "stopped"])
def test_a_gateway_ends(pulsar: PulsarStandalone, tmp_path: Path, end: Callable[[GatewayProcess], None]) -> None:
    lone = lone_gateway_on(pulsar, tmp_path)
    lone.config["limits"] = {"stop_drain_ms": 10_000}
    with running(lone) as gateway:
        traffic = both_kinds(gateway)
        for _ in range(ENDS):
            send_all(traffic)
            end(gateway)
            gateway.start()
            gateway.wait_ready()
        for each in traffic:
            each.check(once=end is GatewayProcess.stop)


@pytest.mark.timeout(400)
def test_a_killed_pulsar(own_pulsar: PulsarStandalone, own_gateway: GatewayProcess, tmp_path: Path) -> None:
    """A gateway that is started in the meantime waits for Pulsar."""
    traffic = both_kinds(own_gateway)
    send_all(traffic)
    own_pulsar.kill()
    other = gateway_on(own_pulsar, tmp_path / "other")
    other.start()
    try:
        wait_for(lambda: "waiting for Pulsar" in other.get("/readyz")[1], "the gateway says why it is not ready")
        assert other.get("/readyz")[0] == 503
        assert other.get("/healthz")[0] == 200
        own_pulsar.start()
        own_pulsar.wait_ready(RECOVERY_S)
        send_all(traffic)
        other.wait_ready(RECOVERY_S)
        assert produce(other.bootstrap, unique_topic("other"), [Record(b"value")]) == [0]
        for each in traffic:
            each.check()
    finally:
        other.stop()


@pytest.mark.timeout(400)
def test_a_suspended_pulsar(own_pulsar: PulsarStandalone, own_gateway: GatewayProcess) -> None:
    traffic = both_kinds(own_gateway)
    send_all(traffic)
    os.kill(own_pulsar.pid, signal.SIGSTOP)
    try:
        for each in traffic:
            each.send()
        time.sleep(PAUSE_S)
    finally:
        os.kill(own_pulsar.pid, signal.SIGCONT)
    for each in traffic:
        each.check()


def test_connections_that_say_nothing(pulsar: PulsarStandalone, tmp_path: Path) -> None:
    topic = unique_topic("faults")
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_FILES
    count = min(IDLE_CONNECTIONS, allowed)
    with running(lone_gateway_on(pulsar, tmp_path)) as gateway, ExitStack() as idle:
        create_topic(gateway.bootstrap, topic)
        produce(gateway.bootstrap, topic, [Record(b"value")] * 100)
        before = resident_bytes(gateway.pid)
        for _ in range(count):
            idle.callback(RawClient(gateway.bootstrap).close)
        assert produce(gateway.bootstrap, topic, [Record(b"value")] * 100) == [*range(100, 200)]
        assert offsets_of(consume(gateway.bootstrap, topic, 200)) == [*range(200)]
        assert metric(gateway, "kafka_gateway_connections") >= count
        assert resident_bytes(gateway.pid) - before < count * BYTES_PER_IDLE_CONNECTION + 16 * MIB


def test_clients_that_never_read(pulsar: PulsarStandalone, tmp_path: Path) -> None:
    topic = unique_topic("faults")
    value = random.Random(1).randbytes(100_000)
    with running(lone_gateway_on(pulsar, tmp_path)) as gateway, ExitStack() as stuck:
        create_topic(gateway.bootstrap, topic)
        produce(gateway.bootstrap, topic, [Record(value)] * 200)
        assert len(consume(gateway.bootstrap, topic, 200)) == 200
        before = resident_bytes(gateway.pid)
        for _ in range(30):
            client = RawClient(gateway.bootstrap)
            stuck.callback(client.close)
            for _ in range(20):
                fetch_all(client, topic)
        for start in range(200, 300, 10):
            assert produce(gateway.bootstrap, topic, [Record(value)] * 10) == [*range(start, start + 10)]
            assert len(consume(gateway.bootstrap, topic, 10, offset=start)) == 10
        assert watermarks(gateway.bootstrap, topic) == (0, 300)
        assert resident_bytes(gateway.pid) - before < 100 * MIB


def fetch_all(client: RawClient, topic: str) -> None:
    """Fetch the whole log, and do not read the response."""
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 50 * MIB}
    client.send(
        "Fetch", 4, replica_id=-1, max_wait_ms=SECOND_S, min_bytes=1, max_bytes=50 * MIB, isolation_level=0,
        topics=[{"topic": topic, "partitions": [wanted]}],
    )  # fmt: skip


def test_garbage(gateway: GatewayProcess, topic: str) -> None:
    """Any bytes: the gateway closes the connection or answers, and serves other clients."""
    chance = random.Random(7)
    logged_chars = len(gateway.log_path.read_text())
    with assigned(gateway.bootstrap, topic) as consumer:
        for number in range(200):
            garbage = chance.randbytes(chance.randrange(1, 4_000))
            if number % 2:  # a frame of the right length, of a known API
                key, version = chance.choice([0, 1, 2, 3, 10, 18, 19, 20, 22, 32, 37, 60]), chance.randrange(0, 18)
                frame = struct.pack(">hh", key, version) + garbage
                garbage = struct.pack(">i", len(frame)) + frame
            exchange(gateway.bootstrap, garbage)
        assert produce(gateway.bootstrap, topic, [Record(b"value")]) == [0]
        assert offsets_of(take(consumer, 1)) == [0]
    assert gateway.running
    assert '"request failed"' not in gateway.log_path.read_text()[logged_chars:]


def exchange(bootstrap: str, data: bytes) -> None:
    """Send, then read until the gateway closes the connection. Raises TimeoutError if the gateway does not."""
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=15) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65_536):
                pass
        except ConnectionResetError:
            return
