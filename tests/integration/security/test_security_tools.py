"""kafka-acls.sh, kafka-configs.sh and an old admin client print the same for the gateway and for Apache Kafka."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.jars import artifact_classpath
from deploy.local.java import java_executable
from deploy.local.kafka import KafkaBroker
from tests.conformance.acls import KAFKA_SETTINGS
from tests.integration.confluent import TIMEOUT_S
from tests.integration.secured_pulsar import SecuredPulsar
from tests.integration.servers import gateway_on, running
from tests.support.java_programs.compiled import compiled
from tests.support.java_programs.kafka_tools import JVM_OPTIONS, KafkaTools
from tests.support.names import unique_topic

ACLS, CONFIGS = "kafka.admin.AclCommand", "kafka.admin.ConfigCommand"
OLD_ADMIN = Path(__file__).parents[1] / "java" / "OldAcls.java"
OLD_VERSION = "1.1.1"
"""Its ACLs have no pattern types: version 0 of the requests."""
JAVA_TIMEOUT_S = 60


class Both:
    """Runs a tool on Apache Kafka and on the gateway. Fails if exit code or lines differ."""

    def __init__(self, kafka: KafkaTools, gateway: KafkaTools) -> None:
        self._kafka = kafka
        self._gateway = gateway
        self.addresses = kafka.bootstrap, gateway.bootstrap

    def __call__(self, tool: str, *arguments: str) -> str:
        actual = self._gateway(tool, *arguments)
        deadline = time.monotonic() + TIMEOUT_S
        while _lines((expected := self._kafka(tool, *arguments)).text) != _lines(actual.text):
            # Kafka's broker applies changes of its controller a moment later.
            is_read = "--describe" in arguments or "--list" in arguments
            assert is_read and time.monotonic() < deadline, (arguments, expected.text, actual.text)
        assert actual.status == expected.status == 0, (expected.text, actual.text)
        return actual.text


def _lines(text: str) -> list[str]:
    """The output has no defined order."""
    return sorted(" ".join(sorted(line.replace(",", " ").split())) for line in text.splitlines() if line.strip())


@pytest.fixture(scope="module")
def both(secured_pulsar: SecuredPulsar, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("security-tools")
    authorization = {"authorizer": "acl", "allow_everyone_if_no_acl_found": True}
    gateway = gateway_on(
        secured_pulsar, folder / "gateway", pulsar={"namespace": unique_topic("tools")}, authorization=authorization
    )
    with (
        running(KafkaBroker(folder / "kafka", settings=KAFKA_SETTINGS)) as kafka,
        running(gateway),
        KafkaTools(kafka.bootstrap) as of_kafka,
        KafkaTools(gateway.bootstrap) as of_gateway,
    ):
        yield Both(of_kafka, of_gateway)


def test_acls(both: Both) -> None:
    alice = ("--allow-principal", "User:alice")
    both(ACLS, "--add", *alice, "--producer", "--topic", "orders", "--resource-pattern-type", "prefixed")
    both(ACLS, "--add", *alice, "--consumer", "--topic", "orders", "--group", "billing")
    both(ACLS, "--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--operation", "All", "--topic", "*")
    listed = both(ACLS, "--list")
    assert "principal=User:alice" in listed and "host=10.0.0.1" in listed
    both(ACLS, "--list", "--topic", "orders-1", "--resource-pattern-type", "match")
    both(ACLS, "--list", "--principal", "User:alice")
    both(ACLS, "--remove", "--topic", "*", "--force")
    assert "User:bob" not in both(ACLS, "--list")
    both(ACLS, "--remove", *alice, "--consumer", "--topic", "orders", "--group", "billing", "--force")
    both(ACLS, "--list")


def test_acls_of_an_old_client(both: Both) -> None:
    class_path = artifact_classpath("org.apache.kafka", "kafka-clients", OLD_VERSION)
    java = [java_executable(), *JVM_OPTIONS, "-cp", f"{compiled(class_path, OLD_ADMIN)}:{class_path}", "OldAcls"]
    expected, actual = (
        subprocess.run([*java, address, "orders-of-old"], check=True, stdout=subprocess.PIPE, timeout=JAVA_TIMEOUT_S)
        for address in both.addresses
    )
    lines = actual.stdout.decode().splitlines()
    assert lines == expected.stdout.decode().splitlines()
    counts = [line for line in lines if line[-1].isdigit()]
    assert counts == ["of the topic 2", "all 4", "removed 2", "left 2", "at last 0"]


def test_users_and_quotas(both: Both) -> None:
    of_alice = ("--entity-type", "users", "--entity-name", "alice")
    for credential in ("SCRAM-SHA-256=[iterations=8192,password=x]", "SCRAM-SHA-512=[password=y]"):
        both(CONFIGS, "--alter", *of_alice, "--add-config", credential)
    both(CONFIGS, "--alter", *of_alice, "--add-config", "producer_byte_rate=1024,request_percentage=50")
    described = both(CONFIGS, "--describe", *of_alice)
    assert "iterations=8192" in described and "producer_byte_rate=1024.0" in described
    both(CONFIGS, "--alter", "--entity-type", "clients", "--entity-default", "--add-config", "consumer_byte_rate=2048")
    both(CONFIGS, "--describe", "--entity-type", "clients")
    both(CONFIGS, "--alter", *of_alice, "--delete-config", "SCRAM-SHA-256")
    both(CONFIGS, "--describe", *of_alice)
    of_address = ("--entity-type", "ips", "--entity-name", "10.0.0.1")
    both(CONFIGS, "--alter", *of_address, "--add-config", "connection_creation_rate=7")
    assert "connection_creation_rate=7.0" in both(CONFIGS, "--describe", *of_address)
