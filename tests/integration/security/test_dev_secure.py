"""`kafka-gateway dev --secure`: one command, and clients can connect only with the files that it writes."""

from __future__ import annotations

import http.client
import json
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from deploy.local.process import ChildProcess, free_port
from tests.integration.native import wait_for
from tests.integration.secured import write_properties
from tests.integration.security.test_login import JAVA, new_topic, round_trip
from tests.support.gateway_process import HOST
from tests.support.java_programs.java_clients import JavaClients
from tests.support.java_programs.kafka_tools import KafkaTools
from tests.support.names import unique_topic

READY_TIMEOUT_S = 120.0


class Dev:
    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.bootstrap = f"{HOST}:{free_port()}"
        self.process = ChildProcess("dev", folder / "dev.log")
        self.http_port = free_port()
        self._command = [
            sys.executable, "-P", "-m", "gateway.cli", "dev", "--secure", "--data", str(self.data),
            "--http-port", str(self.http_port),
        ]  # fmt: skip

    def start(self) -> None:
        self.process.start([*self._command, "--port", self.bootstrap.split(":")[1]])
        self.process.wait_until(lambda: "Ready:" in self.printed, READY_TIMEOUT_S)

    @property
    def printed(self) -> str:
        return self.process.log_path.read_text() if self.process.log_path.exists() else ""

    @property
    def librdkafka(self) -> dict[str, Any]:
        lines = (self.data / "secure" / "librdkafka.conf").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    found = Dev(tmp_path_factory.mktemp("dev"))
    try:
        found.start()
        yield found
    finally:
        found.process.stop()


def test_librdkafka_gets_in(dev: Dev) -> None:
    round_trip(dict(dev.librdkafka))


def test_kafkas_tools_get_in(dev: Dev) -> None:
    config = ("--command-config", str(dev.data / "secure" / "client.properties"))
    topic = unique_topic("dev")
    with KafkaTools(dev.bootstrap) as run:
        made = run("org.apache.kafka.tools.TopicCommand", *config, "--create", "--topic", topic)
        assert made.status == 0, made.text
        granted = run(
            "kafka.admin.AclCommand", *config, "--add", "--allow-principal", "User:bob", "--operation", "Read",
            "--topic", topic,
        )  # fmt: skip
        assert granted.status == 0, granted.text


def test_java_gets_in(dev: Dev, tmp_path: Path) -> None:
    """A producer with the properties for Java, and a consumer with the options of PySpark: those that begin with
    `kafka.` are all that Spark passes to its Kafka client."""
    options: dict[str, str] = json.loads((dev.data / "secure" / "spark.json").read_text())
    assert all(name.startswith("kafka.") for name in options)
    of_spark = {name.removeprefix("kafka."): value for name, value in options.items()}
    write_properties(tmp_path / "spark.properties", of_spark)
    topic = new_topic(dict(dev.librdkafka), partitions=2)
    clients, version = JavaClients(tmp_path), JAVA["3.9.2"]
    of_java = dev.data / "secure" / "client.properties"
    events = [
        *clients.run(version, dev.bootstrap, [f"produce:{topic}:none:true"], of_java),
        *clients.run(version, of_spark["bootstrap.servers"], [f"consume:{topic}:80"], tmp_path / "spark.properties"),
    ]
    produced, consumed = (
        sorted((each["partition"], each["offset"]) for each in events if each["event"] == kind)
        for kind in ("produced", "consumed")
    )
    assert produced == consumed and len(produced) == 80


def test_the_groups_command_gets_in(dev: Dev) -> None:
    command = [sys.executable, "-P", "-m", "gateway.cli", "groups", "--bootstrap", dev.bootstrap]
    login = ["--command-config", str(dev.data / "secure" / "client.properties")]
    for more, status in ((login, 0), ([], 1)):
        done = subprocess.run([*command, *more], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == status, done.stderr


def test_other_clients_cannot_log_in(dev: Dev) -> None:
    without = {key: value for key, value in dev.librdkafka.items() if not key.startswith("s")}
    for config in (without, {**dev.librdkafka, "sasl.password": "token:e30.e30.e30"}):
        admin = AdminClient(config)
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=3)


def test_pulsar_wants_a_token(dev: Dev) -> None:
    address = next(word for word in dev.printed.split() if word.startswith("http://"))
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=10)
    connection.request("GET", "/admin/v2/tenants")
    assert connection.getresponse().status == 401
    connection.close()


def test_secrets_are_for_the_owner(dev: Dev) -> None:
    files = [*(dev.data / "secure").iterdir()]
    secret = [file for file in files if file.suffix in {".key", ".properties", ".conf", ".json"}]
    assert len(secret) >= 5
    assert {stat.S_IMODE(file.stat().st_mode) for file in secret} == {0o600}
    assert "eyJ" not in dev.printed


def test_it_starts_again(dev: Dev) -> None:
    """With the same authority and key, so that clients keep their files."""
    before = dev.librdkafka
    dev.process.stop()
    dev.process.log_path.unlink()
    dev.start()
    assert dev.librdkafka == before
    wait_for(lambda: AdminClient(before).list_topics(timeout=60).topics, "a client lists topics", 60)
