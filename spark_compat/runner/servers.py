"""The two sides: Apache Kafka, and the gateway on a real Pulsar; started here, or already running elsewhere."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from deploy.local.kafka import SHORT_SESSIONS, KafkaBroker
from deploy.local.standalone import PulsarStandalone
from tests.support.gateway_process import GatewayProcess
from tests.support.logins import LISTENERS, Login, Logins
from tests.support.tls_pulsar import TlsPulsar

READY_TIMEOUT_S = 120.0
"""Long, because Spark uses all cores."""
KAFKA_SETTINGS = {
    **SHORT_SESSIONS,
    "group.coordinator.rebalance.protocols": "classic,consumer",  # the second one is a preview in 3.9
    "log.retention.ms": "-1",  # retention goes by the records' timestamps, and those of the trials are old
    "log.retention.check.interval.ms": "1000",
}
DOWN_S = 3.0

Server = KafkaBroker | GatewayProcess | PulsarStandalone


class Faults(Protocol):
    """Faults of a side whose servers were started here. After each fault, all servers run."""

    def restart(self, down_s: float) -> None:
        """SIGKILL the server that clients use, and start it again some seconds later."""

    def pair(self) -> AbstractContextManager[str]:
        """Addresses of two servers. Kafka has a single one."""

    def lose_one(self) -> AbstractContextManager[None]:
        """During the block, one of the two servers is dead. If there is only one, it is restarted."""

    def bounce_storage(self, down_s: float) -> None:
        """SIGKILL the server that stores the records, and start it again some seconds later."""


@dataclass(frozen=True)
class Side:
    """One of the clusters that are compared."""

    name: str
    bootstrap: str
    faults: Faults | None = None
    """None if the servers were not started here."""
    gateway: GatewayProcess | None = None
    """The gateway's process, to measure it."""
    logins: Logins | None = None
    """None if the servers were not started here. The same on both sides."""
    listeners: Mapping[str, str] = field(default_factory=dict)
    """Name → address of the listeners with TLS or logins."""

    def login(self, listener: str, mechanism: str | None = None, **changes: Any) -> Login | None:
        """A client's settings for this login; None if the side has no such logins."""
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
    """Faults of a fleet: a second gateway runs for as long as a pair is requested."""

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
def both_sides(
    work_dir: Path, kafka: str | None, gateway: str | None, *, secured: bool = True
) -> Iterator[tuple[Side, Side]]:
    """Apache Kafka and the gateway. An address (host:port) names a server that already runs, and is not stopped.

    The gateway's Pulsar requires TLS and tokens if it is `secured`.
    """
    logins = Logins(work_dir / "logins")
    with ExitStack() as stack:
        kafka_side = Side("kafka", kafka) if kafka else stack.enter_context(_kafka(work_dir / "kafka", logins))
        new = TlsPulsar if secured else PulsarStandalone
        gateway_side = Side("gateway", gateway) if gateway else stack.enter_context(_gateway(work_dir, logins, new))
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
def _gateway(work_dir: Path, logins: Logins, new_pulsar: Callable[[Path], PulsarStandalone]) -> Iterator[Side]:
    pulsar = new_pulsar(work_dir / "pulsar")
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
    sections = logins.gateway_sections()
    if isinstance(pulsar, TlsPulsar):
        sections["pulsar"] = pulsar.gateway_section()
    return GatewayProcess(work_dir, pulsar.service_url, pulsar.admin_url, sections)


def _restart(server: Server, down_s: float) -> None:
    server.kill()
    time.sleep(down_s)
    _start(server)


def _start(server: Server) -> None:
    server.start()
    server.wait_ready(READY_TIMEOUT_S)
