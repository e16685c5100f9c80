"""kafka-acls.sh and kafka-configs.sh print the same for the gateway and for Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.local.kafka import KafkaBroker
from deploy.local.standalone import PulsarStandalone
from tests.conformance.acls import KAFKA_SETTINGS
from tests.integration.servers import gateway_on, running
from tests.support.kafka_tools import KafkaTools, compile_tools
from tests.support.names import unique_topic

ACLS, CONFIGS = "kafka.admin.AclCommand", "kafka.admin.ConfigCommand"


class Both:
    """Runs a tool on Apache Kafka and on the gateway. Fails if exit code or lines differ."""

    def __init__(self, kafka: KafkaTools, gateway: KafkaTools) -> None:
        self._kafka = kafka
        self._gateway = gateway

    def __call__(self, tool: str, *arguments: str) -> str:
        expected, actual = self._kafka(tool, *arguments), self._gateway(tool, *arguments)
        assert actual.status == expected.status == 0, (expected.text, actual.text)
        assert _lines(actual.text) == _lines(expected.text), arguments
        return actual.text


def _lines(text: str) -> list[str]:
    """The output has no defined order."""
    return sorted(" ".join(sorted(line.replace(",", " ").split())) for line in text.splitlines() if line.strip())


@pytest.fixture(scope="module")
def both(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("security-tools")
    compile_tools(folder)
    authorization = {"authorizer": "acl", "allow_everyone_if_no_acl_found": True}
    gateway = gateway_on(
        pulsar, folder / "gateway", pulsar={"namespace": unique_topic("tools")}, authorization=authorization
    )
    with (
        running(KafkaBroker(folder / "kafka", settings=KAFKA_SETTINGS)) as kafka,
        running(gateway),
        KafkaTools(folder, kafka.bootstrap) as of_kafka,
        KafkaTools(folder, gateway.bootstrap) as of_gateway,
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
