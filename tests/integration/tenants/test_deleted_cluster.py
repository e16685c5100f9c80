"""A cluster whose namespaces are deleted and made anew in Pulsar while clients use it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from deploy.local.process import free_port
from tests.integration.confluent import TIMEOUT_S
from tests.integration.native import wait_for
from tests.integration.secured_pulsar import SecuredPulsar
from tests.integration.servers import gateway_on, running
from tests.integration.tenants.test_cluster_choice import logged_in, make_user, topics_of
from tests.support.gateway_process import HOST, GatewayProcess
from tests.support.names import unique_topic

USER, PASSWORD = "alice", "a"


@pytest.fixture
def tenant(secured_pulsar: SecuredPulsar) -> str:
    name = unique_topic("tenant")
    secured_pulsar.create_tenant(name)
    return name


@pytest.fixture
def gateway(secured_pulsar: SecuredPulsar, tenant: str, tmp_path: Path) -> Iterator[GatewayProcess]:
    login = {
        "name": "login", "host": HOST, "port": free_port(), "protocol": "SASL_PLAINTEXT",
        "mechanisms": ["SCRAM-SHA-256"], "cluster": f"{tenant}/orders",
    }  # fmt: skip
    clusters = [{"namespace": f"{tenant}/orders", "create_namespace": True, "users": ["*"]}]
    found = gateway_on(
        secured_pulsar, tmp_path / "gateway", pulsar={"namespace": unique_topic("own")},
        kafka={"listeners": [login], "clusters": clusters}, security={"users": {USER: PASSWORD}},
        fleet={"forwarding": {"host": HOST, "port": free_port()}},
    )  # fmt: skip
    with running(found):
        yield found


def transaction(gateway: GatewayProcess, topic: str) -> bool:
    """Whether a transaction can be committed."""
    config: dict[str, Any] = {
        "bootstrap.servers": f"{HOST}:{gateway.config['kafka']['listeners'][0]['port']}",
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": USER,
        "sasl.password": PASSWORD, "transactional.id": "id",
    }  # fmt: skip
    try:
        producer = Producer(config)
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce(topic, b"x")
        producer.commit_transaction(10)
    except KafkaException:
        return False
    return True


def test_a_deleted_cluster_begins_anew(
    secured_pulsar: SecuredPulsar, gateway: GatewayProcess, tenant: str
) -> None:
    """Also for clients that never leave it; and users that were deleted with it cannot log in any more."""
    alice = logged_in(gateway, "login", USER, PASSWORD)
    make_user(alice, "nina", "n")
    create(alice, "before")
    assert topics_of(logged_in(gateway, "login", "nina", "n")) == {"before"}
    assert transaction(gateway, "before")
    for name in ("orders", "orders-gateway"):
        secured_pulsar.root.call("DELETE", f"namespaces/{tenant}/{name}?force=true")

    def begins_anew() -> bool:
        with contextlib.suppress(KafkaException):
            create(alice, "after")
        with contextlib.suppress(KafkaException):
            return topics_of(alice, 5) == {"after"}
        return False

    wait_for(begins_anew, "the cluster is made anew")
    wait_for(lambda: transaction(gateway, "after"), "its transactions are coordinated")
    with pytest.raises(KafkaException):
        topics_of(logged_in(gateway, "login", "nina", "n"), 3)
    make_user(alice, "nina", "new")
    assert topics_of(logged_in(gateway, "login", "nina", "new")) == {"after"}


def create(admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, num_partitions=1)], operation_timeout=5)[topic].result(TIMEOUT_S)
