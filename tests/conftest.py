"""The servers that tests talk to, started once a session, and only when a test asks.

Tests that stop, kill or configure a server start one of their own: `PulsarStandalone`, `KafkaBroker` and
`GatewayProcess` all run several at once.
"""

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from deploy.local.kafka import KafkaBroker
from deploy.local.standalone import PulsarStandalone
from tests.integration.servers import running
from tests.support.gateway_process import GatewayProcess

LOG_LINES = 40

# The suite starts many Java programs that do little: half of their CPU went into optimising what then hardly ran.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
# How long an example takes says what else the machine does.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure is shown with what the test's servers logged last: their logs are gone when the machine is."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for name, value in item.funcargs.items():
            path = getattr(value, "log_path", None)
            if isinstance(path, Path) and path.exists():
                lines = path.read_text(errors="replace").splitlines()[-LOG_LINES:]
                report.sections.append((f"log of {name}", "\n".join(lines)))
    return report


@pytest.fixture(scope="session")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarStandalone]:
    with running(PulsarStandalone(tmp_path_factory.mktemp("pulsar"))) as server:
        yield server


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Apache Kafka, the reference, with its preview of the consumer protocol (KIP-848)."""
    protocols = {
        "group.coordinator.rebalance.protocols": "classic,consumer",
        "group.consumer.migration.policy": "bidirectional",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    }
    with running(KafkaBroker(tmp_path_factory.mktemp("kafka"), settings=protocols)) as server:
        yield server


@pytest.fixture(scope="session")
def gateway(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with running(GatewayProcess(tmp_path_factory.mktemp("gateway"), pulsar.service_url, pulsar.admin_url)) as server:
        yield server


@pytest.fixture(params=["kafka", "gateway"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """host:port of a Kafka cluster. The test runs twice, and what fails against Apache Kafka is wrong itself."""
    server: KafkaBroker | GatewayProcess = request.getfixturevalue(request.param)
    return server.bootstrap
