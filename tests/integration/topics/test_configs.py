"""Configurations of topics that a client changed, as Pulsar shows them."""

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import TIMEOUT_S, Record, create_topic, produce
from tests.integration.native import Admin, wait_for
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import UNSUPPORTED_VERSION, RawClient

TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32


def alter(gateway: GatewayProcess, topic: str, **changes: str | None) -> None:
    """Set those with a value, delete the others."""
    entries = [
        ConfigEntry(
            name.replace("_", "."),
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for name, value in changes.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    client = AdminClient({"bootstrap.servers": gateway.bootstrap})
    client.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def described(gateway: GatewayProcess, topic: str, name: str) -> tuple[str | None, bool]:
    """A configuration's value, and whether it is a default."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    client = AdminClient({"bootstrap.servers": gateway.bootstrap})
    entry = client.describe_configs([resource])[resource].result(TIMEOUT_S)[name]
    return entry.value, entry.is_default


def test_groups_have_times_of_their_own(gateway: GatewayProcess) -> None:
    """Kafka has tools for it since version 4."""
    group, client = unique_topic("group"), RawClient(gateway.bootstrap)
    setting = {"name": "consumer.heartbeat.interval.ms", "config_operation": 0, "value": "7000"}
    resource = {"resource_type": GROUP, "resource_name": group}
    try:
        altering = [resource | {"configs": [setting]}]
        (answer,) = client.call("IncrementalAlterConfigs", 1, resources=altering, validate_only=False)["responses"]
        assert (answer["error_code"], answer["error_message"]) == (0, None)
        fields = {"include_synonyms": False, "include_documentation": False}
        asked = [resource | {"configuration_keys": None}]
        (found,) = client.call("DescribeConfigs", 4, resources=asked, **fields)["results"]
        values = {row["name"]: (row["value"], row["config_source"]) for row in found["configs"]}
        expected = {"consumer.heartbeat.interval.ms": ("7000", 8), "consumer.session.timeout.ms": ("45000", 5)}
        assert values == expected
        listed = client.call("ListConfigResources", 1, resource_types=[GROUP])["config_resources"]
        assert [row["resource_type"] for row in listed if row["resource_name"] == group] == [GROUP]
        everything = client.call("ListConfigResources", 1, resource_types=[])["config_resources"]
        resources = {(row["resource_type"], row["resource_name"]) for row in everything}
        assert {(TOPIC, "__consumer_offsets"), (GROUP, group)} <= resources
        assert {kind for kind, _ in resources} == {TOPIC, BROKER, BROKER_LOGGER, GROUP}
        assert client.call("ListConfigResources", 1, resource_types=[3])["error_code"] == UNSUPPORTED_VERSION
    finally:
        client.close()


def test_pulsar_knows(pulsar: PulsarStandalone, gateway: GatewayProcess) -> None:
    topic, admin = unique_topic("configs"), Admin(pulsar)
    create_topic(gateway.bootstrap, topic, config={"retention.ms": "60000"})
    alter(gateway, topic, retention_ms="90000", retention_bytes="1048577", max_message_bytes="2000")
    assert described(gateway, topic, "retention.ms") == ("90000", False)
    expected = {"retentionTimeInMinutes": 2, "retentionSizeInMB": 2}
    wait_for(lambda: admin.topic("GET", topic, "/retention") == expected, "the broker knows the retention")
    wait_for(lambda: admin.topic("GET", topic, "/messageTTL") == 90, "the broker knows the TTL")

    produce(gateway.bootstrap, topic, [Record(b"x" * 1_000)])
    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        produce(gateway.bootstrap, topic, [Record(b"x" * 3_000)])

    alter(gateway, topic, retention_ms=None, retention_bytes=None, max_message_bytes=None)
    assert described(gateway, topic, "retention.ms") == ("604800000", True)
    wait_for(lambda: admin.topic("GET", topic, "/retention") is None, "the namespace's retention counts again")
    wait_for(lambda: admin.topic("GET", topic, "/messageTTL") is None, "the namespace's TTL counts again")
    produce(gateway.bootstrap, topic, [Record(b"x" * 3_000)])
