"""The two sides: Apache Kafka, and the gateway on a real Pulsar; started here, or running already somewhere."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.local.kafka import KafkaBroker
from deploy.local.standalone import PulsarStandalone
from tests.support.gateway_process import GatewayProcess

READY_TIMEOUT_S = 120.0
"""Spark takes every core it can get."""
KAFKA_SETTINGS = {
    "group.coordinator.rebalance.protocols": "classic,consumer",  # the second is a preview in 3.9
    "log.retention.ms": "-1",  # it goes by the records' timestamps, and those of the trials are old
    "log.retention.check.interval.ms": "1000",
}


@dataclass(frozen=True)
class Side:
    """One of the clusters that are compared."""

    name: str
    bootstrap: str
    server: KafkaBroker | GatewayProcess | None = None
    """The process, where it is ours to kill."""

    def kill_server(self) -> None:
        assert self.server is not None
        self.server.kill()

    def start_server(self) -> None:
        assert self.server is not None
        self.server.start()
        self.server.wait_ready(READY_TIMEOUT_S)


@contextmanager
def both_sides(work_dir: Path, kafka: str | None, gateway: str | None) -> Iterator[tuple[Side, Side]]:
    """Apache Kafka and the gateway. An address (host:port) names a server that runs already, and goes on running."""
    with ExitStack() as stack:
        kafka_side = Side("kafka", kafka) if kafka else stack.enter_context(_kafka(work_dir / "kafka"))
        gateway_side = Side("gateway", gateway) if gateway else stack.enter_context(_gateway(work_dir))
        yield kafka_side, gateway_side


@contextmanager
def _kafka(work_dir: Path) -> Iterator[Side]:
    broker = KafkaBroker(work_dir, settings=KAFKA_SETTINGS)
    broker.start()
    try:
        broker.wait_ready()
        yield Side("kafka", broker.bootstrap, broker)
    finally:
        broker.kill()


@contextmanager
def _gateway(work_dir: Path) -> Iterator[Side]:
    pulsar = PulsarStandalone(work_dir / "pulsar")
    gateway = GatewayProcess(work_dir / "gateway", pulsar.service_url, pulsar.admin_url)
    pulsar.start()
    try:
        pulsar.wait_ready()
        gateway.start()
        gateway.wait_ready(READY_TIMEOUT_S)
        yield Side("gateway", gateway.bootstrap, gateway)
    finally:
        gateway.stop()
        pulsar.kill()
