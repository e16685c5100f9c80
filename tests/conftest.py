"""The servers that tests talk to, started once a session, and only when a test asks.

Tests that stop, kill or configure a server start one of their own: `PulsarStandalone`, `KafkaBroker` and
`GatewayProcess` all run several at once.
"""

import os
import re
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from deploy.local.kafka import KafkaBroker
from deploy.local.standalone import PulsarStandalone
from tests.integration.secured_pulsar import SecuredPulsar
from tests.integration.servers import running
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_python_sockets import close_forgotten_sockets

DAY_MS = "86400000"
LOG_LINES, LINE_CHARS = 60, 500
DATA = re.compile("[0-9a-f]+")
"""Names of the files in which Kafka and BookKeeper keep records."""
SERVERS = pytest.StashKey[Path]()
"""The folder with the data and logs of all that is started."""

# The suite starts many Java programs that do little: half of their CPU went into optimising what then hardly ran.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
# And many gateways, each of which would compile the sources anew: a third of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
GatewayProcess.is_forked = True
close_forgotten_sockets()
# How long an example takes says what else the machine does.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure is shown with what servers logged last: their logs are gone when the machine is."""
    report = yield
    folder = item.config.stash.get(SERVERS, None)
    if report.failed and folder is not None:
        for path in sorted(folder.rglob("*.log")):
            if path.stat().st_mtime >= call.start and not DATA.fullmatch(path.stem):
                report.sections.append((f"log of {path.relative_to(folder)}", last_lines(path)))
    return report


def last_lines(path: Path) -> str:
    """Without the frames of Java's exceptions."""
    lines = path.read_text(errors="replace").splitlines()
    return "\n".join([line[:LINE_CHARS] for line in lines if not line.startswith("\t")][-LOG_LINES:])


@pytest.fixture(scope="session", autouse=True)
def folder_of_servers(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> None:
    pytestconfig.stash[SERVERS] = tmp_path_factory.getbasetemp()


@pytest.fixture(scope="session")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarStandalone]:
    with running(PulsarStandalone(tmp_path_factory.mktemp("pulsar"))) as server:
        yield server


@pytest.fixture(scope="session")
def secured_pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredPulsar]:
    with running(SecuredPulsar(tmp_path_factory.mktemp("secured"))) as server:
        yield server


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Apache Kafka, the reference, with its preview of the consumer protocol (KIP-848)."""
    config = {
        "group.coordinator.rebalance.protocols": "classic,consumer",
        "group.consumer.migration.policy": "bidirectional",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
        # It deletes no records, by default every five minutes: by their timestamps, those of tests are years old.
        "log.initial.task.delay.ms": DAY_MS,
        "log.retention.check.interval.ms": DAY_MS,
    }
    with running(KafkaBroker(tmp_path_factory.mktemp("kafka"), settings=config)) as server:
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
