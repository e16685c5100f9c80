"""The two sides: Apache Kafka, and the gateway on a real Pulsar; started here, or running already somewhere."""

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from deploy.local.kafka import KafkaBroker
from deploy.local.standalone import PulsarStandalone
from tests.support.gateway_process import GatewayProcess
from tests.support.logins import LISTENERS, Login, Logins

READY_TIMEOUT_S = 120.0
"""Spark takes every core it can get."""
KAFKA_SETTINGS = {
    "group.coordinator.rebalance.protocols": "classic,consumer",  # the second is a preview in 3.9
    "log.retention.ms": "-1",  # it goes by the records' timestamps, and those of the trials are old
    "log.retention.check.interval.ms": "1000",
}
DOWN_S = 3.0

Server = KafkaBroker | GatewayProcess | PulsarStandalone


class Faults(Protocol):
    """What can happen to the servers of a side that were started here. Each leaves them all running."""

    def restart(self, down_s: float) -> None:
        """SIGKILL to the server that clients talk to, and its start some seconds later."""

    def pair(self) -> AbstractContextManager[str]:
        """Two servers, whose addresses are given: of Kafka it stays the one."""

    def lose_one(self) -> AbstractContextManager[None]:
        """Within, one of the two is dead. Where there is but one, it is restarted."""

    def bounce_storage(self, down_s: float) -> None:
        """SIGKILL to what keeps the records, and its start some seconds later."""


@dataclass(frozen=True)
class Side:
    """One of the clusters that are compared."""

    name: str
    bootstrap: str
    faults: Faults | None = None
    """Where the processes are ours to kill."""
    gateway: GatewayProcess | None = None
    """To measure it."""
    logins: Logins | None = None
    """Where the servers were started here; the same on both sides."""
    listeners: Mapping[str, str] = field(default_factory=dict)
    """Name → address of those with TLS or logins."""

    def login(self, listener: str, mechanism: str | None = None, **changes: Any) -> Login | None:
        """What a client needs to get in; None where nobody knows."""
        if self.logins is None:
            return None
        return self.logins.login(listener, self.listeners[listener], mechanism, **changes)


class KafkaFaults:
    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker

    def restart(self, down_s: float) -> None:
        _restart(self._broker, down_s)

    @contextmanager
    def pair(self) -> Iterator[str]:
        yield self._broker.bootstrap

    @contextmanager
    def lose_one(self) -> Iterator[None]:
        _restart(self._broker, DOWN_S)
        yield

    def bounce_storage(self, down_s: float) -> None:
        _restart(self._broker, down_s)


class GatewayFaults:
    """Of a fleet: a second gateway joins the first for as long as a pair is asked for."""

    def __init__(self, gateway: GatewayProcess, pulsar: PulsarStandalone, logins: Logins) -> None:
        self._gateway = gateway
        self._pulsar = pulsar
        self._logins = logins

    def restart(self, down_s: float) -> None:
        _restart(self._gateway, down_s)

    @contextmanager
    def pair(self) -> Iterator[str]:
        second = _new_gateway(self._gateway.work_dir.with_name("second-gateway"), self._pulsar, self._logins)
        second.start()
        try:
            second.wait_ready(READY_TIMEOUT_S)
            yield f"{self._gateway.bootstrap},{second.bootstrap}"
        finally:
            second.stop()

    @contextmanager
    def lose_one(self) -> Iterator[None]:
        self._gateway.kill()
        try:
            yield
        finally:
            _start(self._gateway)

    def bounce_storage(self, down_s: float) -> None:
        _restart(self._pulsar, down_s)


@contextmanager
def both_sides(work_dir: Path, kafka: str | None, gateway: str | None) -> Iterator[tuple[Side, Side]]:
    """Apache Kafka and the gateway. An address (host:port) names a server that runs already, and goes on running."""
    logins = Logins(work_dir / "logins")
    with ExitStack() as stack:
        kafka_side = Side("kafka", kafka) if kafka else stack.enter_context(_kafka(work_dir / "kafka", logins))
        gateway_side = Side("gateway", gateway) if gateway else stack.enter_context(_gateway(work_dir, logins))
        yield kafka_side, gateway_side


@contextmanager
def _kafka(work_dir: Path, logins: Logins) -> Iterator[Side]:
    broker = logins.kafka(work_dir, KAFKA_SETTINGS)
    broker.start()
    try:
        broker.wait_ready()
        listeners = {name: broker.address(name) for name in LISTENERS}
        yield Side("kafka", broker.bootstrap, KafkaFaults(broker), logins=logins, listeners=listeners)
    finally:
        broker.kill()


@contextmanager
def _gateway(work_dir: Path, logins: Logins) -> Iterator[Side]:
    pulsar = PulsarStandalone(work_dir / "pulsar")
    gateway = _new_gateway(work_dir / "gateway", pulsar, logins)
    pulsar.start()
    try:
        pulsar.wait_ready()
        gateway.start()
        gateway.wait_ready(READY_TIMEOUT_S)
        listeners = {each["name"]: f"{each['host']}:{each['port']}" for each in gateway.config["kafka"]["listeners"]}
        faults = GatewayFaults(gateway, pulsar, logins)
        yield Side("gateway", gateway.bootstrap, faults, gateway, logins, listeners)
    finally:
        gateway.stop()
        pulsar.kill()


def _new_gateway(work_dir: Path, pulsar: PulsarStandalone, logins: Logins) -> GatewayProcess:
    return GatewayProcess(work_dir, pulsar.service_url, pulsar.admin_url, logins.gateway_sections())


def _restart(server: Server, down_s: float) -> None:
    server.kill()
    time.sleep(down_s)
    _start(server)


def _start(server: Server) -> None:
    server.start()
    server.wait_ready(READY_TIMEOUT_S)
