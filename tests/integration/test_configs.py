"""Configurations of topics, altered by a client, as Pulsar then has them."""

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import TIMEOUT_S, Record, create_topic, produce
from tests.integration.native import Admin, wait_for
from tests.support.gateway_process import GatewayProcess
from tests.support.names import unique_topic


def alter(gateway: GatewayProcess, topic: str, **changes: str | None) -> None:
    """Set what has a value, delete the others."""
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
