"""How clients choose one of several clusters, by its own users and its host name; and how a cluster is closed again."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewTopic

from deploy.local.certificates import Authority
from deploy.local.process import free_port
from tests.integration.confluent import TIMEOUT_S
from tests.integration.native import wait_for
from tests.integration.secured_pulsar import SecuredPulsar
from tests.integration.servers import gateway_on, metric, running
from tests.integration.tenants.test_clusters import address
from tests.support.gateway_process import HOST, GatewayProcess
from tests.support.names import unique_topic
from tests.support.raw_client import connected

HOST_NAME = "orders.example.com"
IDLE_MS = 1_000
LOGIN: dict[str, Any] = {"protocol": "SASL_PLAINTEXT", "mechanisms": ["PLAIN", "SCRAM-SHA-256"]}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def gateway(
    secured_pulsar: SecuredPulsar, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    tenant, issued = unique_topic("tenant"), authority.issue("gateway", hosts=[HOST, HOST_NAME])
    secured_pulsar.create_tenant(tenant)
    tls = {"certificate": str(issued.certificate), "key": str(issued.key)}
    kafka = {
        "listeners": [
            {"name": "login", "host": HOST, "port": free_port(), **LOGIN},
            {"name": "orders", "host": HOST, "port": free_port(), "cluster": f"{tenant}/orders", **LOGIN},
            {
                "name": "tls", "host": HOST, "port": free_port(), "protocol": "SSL", "tls": tls, "single_address": True,
            },
        ],
        "clusters": [
            {"namespace": f"{tenant}/orders", "create_namespace": True, "users": ["alice"], "hosts": [HOST_NAME]},
            {"namespace": f"{tenant}/bills", "create_namespace": True, "users": ["bob", "tom"]},
        ],
        "cluster_limits": {"idle_ms": IDLE_MS},
    }  # fmt: skip
    found = gateway_on(
        secured_pulsar, tmp_path_factory.mktemp("gateway"), pulsar={"namespace": unique_topic("own")}, kafka=kafka,
        fleet={"forwarding": {"host": HOST, "port": free_port()}}, security={"users": {"alice": "a", "bob": "b"}},
    )  # fmt: skip
    with running(found):
        yield found


def logged_in(gateway: GatewayProcess, listener: str, user: str, password: str) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": address(gateway, listener), "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": user, "sasl.password": password,
        }
    )  # fmt: skip


def topics_of(admin: AdminClient, timeout_s: float = TIMEOUT_S) -> set[str]:
    return {name for name in admin.list_topics(timeout=timeout_s).topics if not name.startswith("__")}


def make_user(admin: AdminClient, user: str, password: str) -> None:
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_096)
    wanted: Any = UserScramCredentialUpsertion(user, credential, password.encode())
    for future in admin.alter_user_scram_credentials([wanted]).values():
        future.result(TIMEOUT_S)


def test_users_of_a_cluster(gateway: GatewayProcess) -> None:
    """Users of a cluster are unknown elsewhere, and a user with the same name in another cluster is another user."""
    admin = logged_in(gateway, "login", "alice", "a")
    topic = unique_topic()
    admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(TIMEOUT_S)
    for user in ("nina", "tom"):
        make_user(admin, user, "of orders")
    make_user(logged_in(gateway, "login", "bob", "b"), "tom", "of bills")
    for user in ("nina", "tom"):
        assert topics_of(logged_in(gateway, "orders", user, "of orders")) == {topic}
    assert topics_of(logged_in(gateway, "login", "tom", "of bills")) == set()
    nobody = [("login", "nina", "of orders"), ("login", "tom", "of orders"), ("orders", "tom", "of bills")]
    for listener, user, password in nobody:
        with pytest.raises(KafkaException):
            topics_of(logged_in(gateway, listener, user, password), 3)


def test_a_host_name(gateway: GatewayProcess, authority: Authority) -> None:
    """Clients are redirected to the name that they connected to, so that they stay in the cluster."""
    topic = unique_topic()
    admin = logged_in(gateway, "login", "alice", "a")
    admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(TIMEOUT_S)
    context = ssl.create_default_context(cafile=str(authority.certificate))
    for name, is_there in ((HOST_NAME, True), (HOST, False)):
        with connected(address(gateway, "tls"), tls=(context, name)) as client:
            found = client.call("Metadata", 9, topics=None)
        assert (topic in {each["name"] for each in found["topics"]}) == is_there
        assert [broker["host"] for broker in found["brokers"]] == [HOST_NAME if is_there else HOST]


def test_an_unused_cluster_is_closed(gateway: GatewayProcess) -> None:
    """With its tasks and its metrics. A client that connects again finds its data."""
    cluster = gateway.config["kafka"]["clusters"][1]["namespace"]

    def rows() -> list[str]:
        status, text = gateway.get("/metrics", TIMEOUT_S)
        assert status == 200
        return [line for line in text.splitlines() if f'cluster="{cluster}"' in line]

    wait_for(lambda: not rows(), "the cluster is closed", 60)
    tasks, topic = metric(gateway, "kafka_gateway_tasks"), unique_topic()
    for _ in range(2):
        admin = logged_in(gateway, "login", "bob", "b")
        if topic not in topics_of(admin):
            admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(TIMEOUT_S)
        assert topic in topics_of(admin) and rows()
        del admin
        wait_for(lambda: not rows(), "the cluster is closed", 60)
        wait_for(lambda: metric(gateway, "kafka_gateway_tasks") <= tasks, "its tasks have ended", 60)
    assert "unexpected" not in gateway.log_path.read_text()


def test_the_audit(gateway: GatewayProcess) -> None:
    text = gateway.log_path.read_text()
    assert "security changed" in text and "SCRAM-SHA-256 nina" in text and "login failed" in text
    assert "of orders" not in text and "of bills" not in text
