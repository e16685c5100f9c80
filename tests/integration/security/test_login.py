"""Clients that log in, by SASL with and without TLS, and by their certificates."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import kafka
import kafka.net.sasl.oauth
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]
from aiokafka.abc import AbstractTokenProvider  # type: ignore[import-untyped]
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from deploy.local.certificates import Authority
from tests.integration.confluent import TIMEOUT_S
from tests.integration.native import wait_for
from tests.integration.secured import MECHANISMS, PASSWORD, SASL_LISTENERS, TLS_LISTENERS, USER, Secured
from tests.integration.secured_pulsar import SecuredPulsar
from tests.integration.servers import metric, running
from tests.support.java_programs.java_clients import CLIENTS, JavaClient, JavaClients
from tests.support.java_programs.kafka_tools import KafkaTools
from tests.support.names import unique_topic

RECORDS = [b"%d" % number for number in range(200)]
JAVA = {client.version: client for client in CLIENTS}
JAVA_CASES = [
    ("0.10.2.2", "sasl_tls", "PLAIN"),
    ("1.1.1", "sasl_tls", "SCRAM-SHA-256"),
    ("2.8.2", "sasl", "PLAIN"),
    ("2.8.2", "mutual", ""),
    ("3.9.2", "sasl_tls", "SCRAM-SHA-512"),
    ("4.3.0", "sasl_tls", "PLAIN"),
    ("4.3.0", "mutual", ""),
]
ALLOW_FILES = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"
"""Since Kafka 3.9.1 a property lists the allowed URLs of tokens."""


@pytest.fixture(scope="module")
def secured(secured_pulsar: SecuredPulsar, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    found = Secured(secured_pulsar, tmp_path_factory.mktemp("login"))
    with running(found.gateway):
        yield found
    # No test leaves a secret in the log.
    log = found.gateway.log_path.read_text()
    assert PASSWORD not in log and "eyJ" not in log


@pytest.fixture(scope="module")
def java_clients(tmp_path_factory: pytest.TempPathFactory) -> JavaClients:
    return JavaClients(tmp_path_factory.mktemp("java"))


def new_topic(config: dict[str, Any], partitions: int = 1) -> str:
    topic = unique_topic("login")
    admin = AdminClient(config)  # the variable keeps the client open until it has the response
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_S)
    return topic


def round_trip(config: dict[str, Any]) -> None:
    topic = new_topic(config)
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
@pytest.mark.parametrize("listener", SASL_LISTENERS)
def test_librdkafka_logs_in(secured: Secured, listener: str, mechanism: str) -> None:
    round_trip(secured.librdkafka(listener, mechanism))


@pytest.mark.parametrize("listener", TLS_LISTENERS)
def test_librdkafka_speaks_tls(secured: Secured, listener: str) -> None:
    before = metric(secured.gateway, "kafka_gateway_logins_total", mechanism="certificate", outcome="done")
    round_trip(secured.librdkafka(listener))
    after = metric(secured.gateway, "kafka_gateway_logins_total", mechanism="certificate", outcome="done")
    assert (after > before) == (listener == "mutual")
    assert ('"principal": "CLIENT"' in secured.gateway.log_path.read_text()) == (after > 0)


def test_api_versions_before_login(secured: Secured) -> None:
    admin = AdminClient(secured.librdkafka("sasl_tls", "PLAIN"))
    node = str(next(iter(admin.list_topics(timeout=TIMEOUT_S).brokers)))
    resource = ConfigResource(ConfigResource.Type.BROKER, node)
    configs = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert configs["advertised.listeners"].value == f"SASL_SSL://{secured.address('sasl_tls')}"


def test_a_token_as_password(secured: Secured) -> None:
    token = "token:" + secured.issuer.token("role-1")
    round_trip(secured.librdkafka("sasl_tls", "PLAIN", **{"sasl.username": "role-1", "sasl.password": token}))


class Tokens(kafka.net.sasl.oauth.AbstractTokenProvider, AbstractTokenProvider):  # type: ignore[misc]
    """A token provider for kafka-python, and for aiokafka, whose method is a coroutine."""

    def __init__(self, secured: Secured) -> None:
        self.secured = secured

    def token(self) -> Any:
        return self.secured.issuer.token(USER)


class AsyncTokens(Tokens):
    async def token(self) -> str:
        return self.secured.issuer.token(USER)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in(secured: Secured, mechanism: str) -> None:
    topic = new_topic(secured.librdkafka("sasl", "PLAIN"))
    config: dict[str, Any] = {
        "bootstrap_servers": secured.address("sasl_tls"), "security_protocol": "SASL_SSL", "sasl_mechanism": mechanism,
        "ssl_cafile": str(secured.authority.certificate),
    }  # fmt: skip
    if mechanism == "OAUTHBEARER":
        config["sasl_oauth_token_provider"] = Tokens(secured)
    else:
        config |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    with closing(kafka.KafkaProducer(**config)) as producer:
        for record in RECORDS:
            producer.send(topic, record)
        producer.flush(TIMEOUT_S)
    consumer = kafka.KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000, **config
    )
    with closing(consumer):
        assert [next(consumer).value for _ in RECORDS] == RECORDS


@pytest.mark.parametrize(("listener", "mechanism"), [*(("sasl_tls", each) for each in MECHANISMS), ("mutual", "")])
async def test_aiokafka_logs_in(secured: Secured, listener: str, mechanism: str) -> None:
    topic = await asyncio.to_thread(new_topic, secured.librdkafka("sasl", "PLAIN"))
    context = ssl.create_default_context(cafile=str(secured.authority.certificate))
    if listener == "mutual":
        context.load_cert_chain(secured.client.certificate, secured.client.key)
    config: dict[str, Any] = {
        "bootstrap_servers": secured.address(listener), "security_protocol": secured.protocols[listener],
        "ssl_context": context,
    }  # fmt: skip
    if mechanism == "OAUTHBEARER":
        config |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": AsyncTokens(secured)}
    elif mechanism:
        config |= {"sasl_mechanism": mechanism, "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    async with asyncio.timeout(TIMEOUT_S):
        async with AIOKafkaProducer(**config) as producer:
            for record in RECORDS:
                await producer.send(topic, record)
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **config) as consumer:
            assert [(await consumer.getone()).value for _ in RECORDS] == RECORDS


@pytest.mark.parametrize(("version", "listener", "mechanism"), JAVA_CASES)
def test_java_logs_in(
    secured: Secured, java_clients: JavaClients, version: str, listener: str, mechanism: str
) -> None:
    client: JavaClient = JAVA[version]
    topic = new_topic(secured.librdkafka("sasl", "PLAIN"), partitions=2)
    steps = [f"produce:{topic}:none:{str(client.idempotent).lower()}", f"consume:{topic}:80"]
    events = java_clients.run(client, secured.address(listener), steps, secured.java(listener, mechanism))
    produced, consumed = (
        sorted((each["partition"], each["offset"]) for each in events if each["event"] == kind)
        for kind in ("produced", "consumed")
    )
    assert produced == consumed and len(produced) == 80


def test_java_tools_log_in(secured: Secured) -> None:
    """`--command-config` with each mechanism, with a wrong password, and without a login."""
    topics = "org.apache.kafka.tools.TopicCommand"
    topic = unique_topic("login")
    token_file = secured.java("sasl_tls", "OAUTHBEARER").parent / "token"
    with KafkaTools(secured.address("sasl_tls"), f"{ALLOW_FILES}={token_file.as_uri()}") as run:
        for number, mechanism in enumerate(MECHANISMS):
            config = ("--command-config", str(secured.java("sasl_tls", mechanism)))
            made = run(topics, *config, "--create", "--topic", f"{topic}-{number}")
            assert made.status == 0, made.text
            assert f"{topic}-{number}" in run(topics, *config, "--list").text.split()
        for mechanism, text in (
            ("PLAIN", "Authentication failed: Invalid username or password"),
            ("SCRAM-SHA-256", "due to invalid credentials with SASL mechanism"),
        ):
            wrong = secured.java("sasl_tls", mechanism, password="wrong")
            printed = run(topics, "--command-config", str(wrong), "--list")
            assert printed.status == 1 and text in printed.text


# Refused logins


def failure(config: dict[str, Any]) -> list[KafkaError]:
    """The errors of librdkafka when it cannot connect."""
    errors: list[KafkaError] = []
    noted: dict[str, Any] = {**config, "error_cb": errors.append}
    admin = AdminClient(noted)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)

    def noticed() -> list[KafkaError]:
        admin.poll(0.1)
        return errors

    found: list[KafkaError] = wait_for(noticed, "the client notices an error")
    return found


def closed(secured: Secured, reason: str) -> float:
    return metric(secured.gateway, "kafka_gateway_connections_closed_total", reason=reason)


def test_wrong_certificates(secured: Secured) -> None:
    before = closed(secured, "TLS handshake failed")
    stranger = Authority(secured.folder / "stranger").issue("client", unit="tests")
    files = {"ssl.certificate.location": str(stranger.certificate), "ssl.key.location": str(stranger.key)}
    assert failure(secured.librdkafka("mutual", **files))
    config = secured.librdkafka("mutual")
    for key in files:
        del config[key]
    assert failure(config)
    wait_for(lambda: closed(secured, "TLS handshake failed") >= before + 2, "both are counted")


def test_a_certificate_that_no_rule_names(secured: Secured) -> None:
    other = secured.authority.issue("other", unit="others")
    files = {"ssl.certificate.location": str(other.certificate), "ssl.key.location": str(other.key)}
    assert failure(secured.librdkafka("mutual", **files))
    wait_for(lambda: closed(secured, "client certificate not accepted") >= 1, "it is counted")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_wrong_passwords(secured: Secured, mechanism: str) -> None:
    errors = failure(secured.librdkafka("sasl_tls", mechanism, **{"sasl.password": "wrong"}))
    assert any(error.code() == KafkaError._AUTHENTICATION for error in errors)
    assert metric(secured.gateway, "kafka_gateway_logins_total", mechanism=mechanism, outcome="failed") >= 1
