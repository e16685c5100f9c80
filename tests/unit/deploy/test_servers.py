"""The settings and commands of Pulsar and Kafka, without starting either."""

from pathlib import Path

import pytest

from deploy.local import kafka, standalone
from deploy.local.kafka import KafkaBroker
from deploy.local.process import ChildProcess, StartError
from deploy.local.standalone import PulsarStandalone


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that would have been started."""
    started: list[list[str]] = []
    for module in (standalone, kafka):
        monkeypatch.setattr(module, "classpath", lambda name: f"/jars/{name}/*")
        monkeypatch.setattr(module, "java_executable", lambda: "false")
    monkeypatch.setattr(ChildProcess, "start", lambda self, command, env=None: started.append(command))
    return started


def properties(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines()
    pairs = dict(line.split("=", 1) for line in lines)
    assert len(pairs) == len(lines), "a key is written twice"
    return pairs


def test_pulsar_has_what_the_gateway_needs_of_a_broker(tmp_path: Path, commands: list[list[str]]) -> None:
    server = PulsarStandalone(tmp_path, broker_port=21_000, http_port=21_001, heap_mb=333)
    server.start()
    config = properties(tmp_path / "standalone.conf")
    assert config["brokerEntryMetadataInterceptors"].endswith("AppendIndexMetadataInterceptor")
    assert config["exposingBrokerEntryMetadataToClientEnabled"] == "true"
    assert (config["brokerServicePort"], config["webServicePort"]) == ("21000", "21001")
    assert config["bindAddress"] == config["advertisedAddress"] == "127.0.0.1"
    assert (server.service_url, server.admin_url) == ("pulsar://127.0.0.1:21000", "http://127.0.0.1:21001")
    assert {"-Xmx333m", "--no-functions-worker", "--no-stream-storage", str(tmp_path / "standalone.conf")} <= {
        *commands[0]
    }


def test_settings_of_the_caller_win(tmp_path: Path, commands: list[list[str]]) -> None:
    PulsarStandalone(tmp_path / "p", settings={"journalSyncData": "true", "maxMessageSize": "1"}).start()
    config = properties(tmp_path / "p" / "standalone.conf")
    assert (config["journalSyncData"], config["maxMessageSize"]) == ("true", "1")
    broker = KafkaBroker(tmp_path / "k", settings={"num.partitions": "3"})
    (tmp_path / "k" / "logs").mkdir(parents=True)
    (tmp_path / "k" / "logs" / "meta.properties").touch()  # formatted before
    broker.start()
    assert properties(tmp_path / "k" / "server.properties")["num.partitions"] == "3"
    assert len(commands) == 2


def test_servers_side_by_side_share_no_port(tmp_path: Path) -> None:
    servers = [PulsarStandalone(tmp_path / str(n)) for n in range(3)]
    ports = [port for server in servers for port in (server.broker_port, server.http_port)]
    assert len(set(ports)) == len(ports)


def test_kafka_says_why_it_cannot_format(tmp_path: Path, commands: list[list[str]]) -> None:
    with pytest.raises(StartError, match="could not format"):
        KafkaBroker(tmp_path).start()
    assert commands == []
