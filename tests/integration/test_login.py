"""Clients that log in: by SASL with and without TLS, and by their certificates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from deploy.local.process import free_port
from deploy.local.standalone import PulsarStandalone
from tests.integration.confluent import TIMEOUT_S
from tests.integration.servers import gateway_on, running
from tests.support.certificates import Authority
from tests.support.gateway_process import HOST
from tests.support.names import unique_topic
from tests.support.tokens import Issuer

USER, PASSWORD = "alice", "canary-secret-of-alice"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
RECORDS = [b"%d" % number for number in range(200)]


class Secured:
    """A gateway with a listener of each kind, and what its clients need to know."""

    def __init__(self, pulsar: PulsarStandalone, folder: Path) -> None:
        self.authority = Authority(folder / "certificates")
        self.issuer = Issuer(folder / "tokens")
        self.server = self.authority.issue("gateway", hosts=[HOST, "localhost"])
        self.client = self.authority.issue("client", unit="tests")
        self.ports = {name: free_port() for name in ("sasl", "sasl_tls", "mutual", "tls")}
        tls = {"certificate": str(self.server.certificate), "key": str(self.server.key)}
        mutual = tls | {"authorities": str(self.authority.certificate)}
        sasl: dict[str, Any] = {"mechanisms": list(MECHANISMS)}
        listeners: list[dict[str, Any]] = [
            {"name": "sasl", "protocol": "SASL_PLAINTEXT", **sasl},
            {"name": "sasl_tls", "protocol": "SASL_SSL", "tls": tls, **sasl},
            {
                "name": "mutual", "protocol": "SSL", "tls": mutual, "client_auth": "required",
                "principal_rules": "RULE:^CN=(.*?),OU=tests$/$1/U",
            },
            {"name": "tls", "protocol": "SSL", "tls": tls},
        ]  # fmt: skip
        for listener in listeners:
            listener |= {"host": HOST, "port": self.ports[listener["name"]]}
        self.gateway = gateway_on(
            pulsar, folder / "gateway", kafka={"host": HOST, "port": free_port(), "listeners": listeners},
            security={"users": {USER: PASSWORD}, "tokens": {"public_key_file": str(self.issuer.public_key_file)}},
        )  # fmt: skip

    def address(self, listener: str) -> str:
        return f"{HOST}:{self.ports[listener]}"

    def librdkafka(self, listener: str, mechanism: str = "", **more: Any) -> dict[str, Any]:
        config: dict[str, Any] = {"bootstrap.servers": self.address(listener), "socket.timeout.ms": 10_000}
        if listener != "sasl":
            config |= {"security.protocol": "ssl", "ssl.ca.location": str(self.authority.certificate)}
        if listener == "mutual":
            config["ssl.certificate.location"] = str(self.client.certificate)
            config["ssl.key.location"] = str(self.client.key)
        if mechanism:
            config["security.protocol"] = "sasl_ssl" if listener == "sasl_tls" else "sasl_plaintext"
            config["sasl.mechanism"] = mechanism
        if mechanism == "OAUTHBEARER":
            config["oauth_cb"] = lambda _: (self.issuer.token(USER), __import__("time").time() + 3_600)
        elif mechanism:
            config |= {"sasl.username": USER, "sasl.password": PASSWORD}
        return config | more


@pytest.fixture(scope="module")
def secured(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    found = Secured(pulsar, tmp_path_factory.mktemp("login"))
    with running(found.gateway):
        yield found


def round_trip(config: dict[str, Any]) -> None:
    topic = unique_topic("login")
    admin = AdminClient(config)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)
    producer = Producer(config)
    for record in RECORDS:
        producer.produce(topic, record)
    assert producer.flush(TIMEOUT_S) == 0
    with closing(Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})) as consumer:
        consumer.subscribe([topic])
        read: list[bytes] = []
        while len(read) < len(RECORDS):
            messages = consumer.consume(len(RECORDS), TIMEOUT_S)
            assert messages
            read += [message.value() or b"" for message in messages]
    assert read == RECORDS


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["sasl", "sasl_tls"])
def test_librdkafka_logs_in(secured: Secured, listener: str, mechanism: str) -> None:
    round_trip(secured.librdkafka(listener, mechanism))


@pytest.mark.parametrize("listener", ["tls", "mutual"])
def test_librdkafka_speaks_tls(secured: Secured, listener: str) -> None:
    round_trip(secured.librdkafka(listener))
