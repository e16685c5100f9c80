"""Sessions that expire, and clients that are limited: slow ones, many large ones, and clients that do not read."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.conformance.logins import bearer
from tests.integration.confluent import TIMEOUT_S, read_all
from tests.integration.native import wait_for
from tests.integration.secured import PASSWORD, USER, Secured
from tests.integration.secured_pulsar import SecuredPulsar
from tests.integration.security.test_login import ALLOW_FILES, new_topic
from tests.integration.servers import metric, resident_bytes, running
from tests.integration.token_provider import SHORT_TOKENS, asking, token_provider
from tests.support.gateway_process import HOST
from tests.support.java_programs.kafka_tools import KafkaTools
from tests.support.raw_client import ConnectionClosedError, RawClient, connected, encode_request

LOGIN_MS, REAUTH_MS = 3_000, 3_000
"""Enough for a client on a busy machine to log in, and to ask once."""
LONGER_S = 8.0
TOKEN_S = 2.5
"""Less than a session may last: connections end with their token."""
PER_ADDRESS = 8
MIB = 1024 * 1024
UNREAD_BUDGET_BYTES = 32 * MIB
DEAF_CLIENTS = 40
MOST_BYTES = UNREAD_BUDGET_BYTES + 120 * MIB
"""The memory that these clients may add, including other allocations. Each requests 200 MiB."""
READ_FROM = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 8 * MIB, "isolation_level": 0}


@pytest.fixture(scope="module")
def strict(secured_pulsar: SecuredPulsar, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    limits = {
        "login_timeout_ms": LOGIN_MS, "max_unauthenticated_per_address": PER_ADDRESS,
        "unread_budget_bytes": UNREAD_BUDGET_BYTES, "fetch_budget_bytes": 20 * MIB,
    }  # fmt: skip
    found = Secured(secured_pulsar, tmp_path_factory.mktemp("strict"), max_reauth_ms=REAUTH_MS, limits=limits)
    with running(found.gateway):
        yield found


def ended(strict: Secured, reason: str) -> float:
    return metric(strict.gateway, "kafka_gateway_connections_closed_total", reason=reason)


def too_late(strict: Secured) -> float:
    return ended(strict, "no login in time") + ended(strict, "no TLS handshake in time")


def logins(strict: Secured, outcome: str) -> float:
    return metric(strict.gateway, "kafka_gateway_logins_total", outcome=outcome)


def log_in(client: RawClient) -> int:
    """The session's lifetime in milliseconds."""
    assert client.call("SaslHandshake", 1, mechanism="PLAIN")["error_code"] == 0
    answer = client.call("SaslAuthenticate", 2, auth_bytes=f"\0{USER}\0{PASSWORD}".encode())
    assert answer["error_code"] == 0
    return int(answer["session_lifetime_ms"])


class Numbers:
    """A producer of numbers, in order."""

    def __init__(self, config: dict[str, Any], topic: str) -> None:
        self.failed: list[KafkaError] = []
        self.delivered: list[int] = []
        self.sent = 0
        self._topic = topic
        self._producer = Producer({**config, "enable.idempotence": True})

    def send(self) -> None:
        self._producer.produce(self._topic, b"%d" % self.sent, on_delivery=self._done)
        self._producer.poll(0.01)
        self.sent += 1

    def check(self) -> None:
        assert self._producer.flush(TIMEOUT_S) == 0
        assert self.failed == [] and self.delivered == [*range(self.sent)]

    def _done(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.delivered.append(int(message.value() or b""))


# Sessions


def test_an_expired_session_serves_nothing(strict: Secured) -> None:
    with connected(strict.address("sasl")) as client:
        assert log_in(client) == REAUTH_MS
        assert client.call("Metadata", 1, topics=[])["brokers"]
        time.sleep(REAUTH_MS / 1000 + 0.2)
        with pytest.raises(ConnectionClosedError):
            client.call("Metadata", 1, topics=[])
    with connected(strict.address("sasl")) as client:
        for _ in range(3):
            log_in(client)
            assert client.call("Metadata", 1, topics=[])["brokers"]
            time.sleep(REAUTH_MS / 1000 + 0.2)
        log_in(client)  # also after the end of the session
        assert client.call("Metadata", 1, topics=[])["brokers"]


def test_librdkafka_continues_after_the_end_of_a_session(strict: Secured) -> None:
    """It does not log in again: it is disconnected, reconnects, and loses nothing."""
    config = strict.librdkafka("sasl_tls", "SCRAM-SHA-256")
    numbers = Numbers(config, new_topic(config))
    deadline = time.monotonic() + LONGER_S
    while time.monotonic() < deadline:
        numbers.send()
    numbers.check()


def test_java_logs_in_again(strict: Secured) -> None:
    topic = new_topic(strict.librdkafka("sasl", "PLAIN"))
    before = logins(strict, "again")
    with KafkaTools(strict.address("sasl_tls")) as run:

        def logs_in_again() -> bool:
            """On a busy machine, a session may expire before the client begins the next one, and the first login may
            come too late: then the tool sends nothing."""
            late_before = too_late(strict)
            done = run(
                "org.apache.kafka.tools.VerifiableProducer", "--topic", topic, "--max-messages", "600",
                "--throughput", "100", "--producer.config", str(strict.java("sasl_tls", "SCRAM-SHA-512")),
            )  # fmt: skip
            # This tool does not retry, and waits for the last outcomes only when its JVM ends.
            sent, lost = (done.text.count(f"producer_send_{outcome}") for outcome in ("success", "error"))
            if sent + lost == 0 and too_late(strict) > late_before:
                return False
            assert sent + lost <= 600, done.text[-2_000:]
            # Outcomes of more than a second are missing if it was slow to connect again at the end.
            return sent > 0 and sent + lost > 500 and logins(strict, "again") > before

        wait_for(logs_in_again, "the client logs in again", 3 * TIMEOUT_S)


# Tokens that expire sooner than sessions have to


def log_in_with_token(client: RawClient, strict: Secured) -> None:
    assert client.call("SaslHandshake", 1, mechanism="OAUTHBEARER")["error_code"] == 0
    token = strict.issuer.token(USER, lifetime_s=TOKEN_S)
    answer = client.call("SaslAuthenticate", 2, auth_bytes=bearer(token))
    assert answer["error_code"] == 0 and 0 < answer["session_lifetime_ms"] <= TOKEN_S * 1000


def test_a_connection_ends_with_its_token(strict: Secured) -> None:
    before = ended(strict, "session expired")
    with connected(strict.address("sasl")) as client:
        for _ in range(2):
            log_in_with_token(client, strict)
            assert client.call("Metadata", 1, topics=[])["brokers"]
            time.sleep(TOKEN_S + 0.2)
        with pytest.raises(ConnectionClosedError):
            client.call("Metadata", 1, topics=[])
    assert ended(strict, "session expired") == before + 1


def test_librdkafka_continues_with_new_tokens(strict: Secured) -> None:
    """It asks for a new token in time, and loses nothing when a connection ends with the old one."""
    topic = new_topic(strict.librdkafka("sasl", "PLAIN"))
    issued: list[str] = []

    def refresh(_: str) -> tuple[str, float]:
        issued.append(strict.issuer.token(USER, lifetime_s=TOKEN_S))
        return issued[-1], time.time() + TOKEN_S

    def ends() -> float:
        return ended(strict, "session expired") + logins(strict, "again")

    numbers, before = Numbers(strict.librdkafka("sasl_tls", "OAUTHBEARER", oauth_cb=refresh), topic), ends()
    deadline = time.monotonic() + TIMEOUT_S
    while ends() < before + 2 or len(issued) < 3:
        assert time.monotonic() < deadline
        for _ in range(5):
            numbers.send()
    numbers.check()
    assert read_all(strict.gateway.bootstrap, topic) == [b"%d" % number for number in range(numbers.sent)]


def test_java_logs_in_again_with_new_tokens(strict: Secured) -> None:
    topic = new_topic(strict.librdkafka("sasl", "PLAIN"))
    config = strict.java("sasl_tls", "OAUTHBEARER")
    before, acknowledged = logins(strict, "again"), set[bytes]()
    with (
        token_provider(strict.issuer, USER, TOKEN_S) as url,
        KafkaTools(strict.address("sasl_tls"), f"{ALLOW_FILES}={url}") as run,
    ):
        with config.open("a") as out:
            out.writelines(f"{key}={value}\n" for key, value in (SHORT_TOKENS | asking(url)).items())

        def logs_in_again() -> bool:
            """On a slow machine, a token may expire before the client uses it."""
            done = run(
                "org.apache.kafka.tools.VerifiableProducer", "--topic", topic, "--max-messages", "400",
                "--throughput", "100", "--producer.config", str(config), "--value-prefix", str(len(acknowledged)),
            )  # fmt: skip
            rows = [json.loads(line) for line in done.text.splitlines() if line.startswith("{")]
            found = {row["value"].encode() for row in rows if row["name"] == "producer_send_success"}
            acknowledged.update(found)
            return len(found) > 300 and logins(strict, "again") > before

        wait_for(logs_in_again, "the client logs in again", 3 * TIMEOUT_S)
    assert acknowledged <= {*read_all(strict.gateway.bootstrap, topic)}


# Clients before login


def test_a_silent_client_is_disconnected(strict: Secured) -> None:
    for listener in strict.protocols:
        with closing(socket.create_connection((HOST, strict.ports[listener]), TIMEOUT_S)) as silent:
            silent.sendall(b"" if listener == "sasl" else b"\x16\x03")
            if listener == "sasl":
                silent.sendall(b"\0\0")
            assert silent.recv(1) == b""
    assert ended(strict, "no login in time") >= 1
    assert ended(strict, "no TLS handshake in time") >= 3


def test_a_login_in_small_steps_has_no_more_time(strict: Secured) -> None:
    frame = encode_request("SaslHandshake", 1, {"mechanism": "PLAIN"})
    data = len(frame).to_bytes(4, "big") + frame
    with closing(socket.create_connection((HOST, strict.ports["sasl"]), TIMEOUT_S)) as slow:
        with contextlib.suppress(ConnectionError):
            for byte in data:
                slow.sendall(bytes([byte]))
                time.sleep(2 * LOGIN_MS / 1000 / len(data))
        with contextlib.suppress(ConnectionError):
            assert slow.recv(1) == b""


def test_few_connections_without_login_from_one_address(strict: Secured) -> None:
    before = ended(strict, "too many connections without login")
    address = (HOST, strict.ports["sasl"])
    with contextlib.ExitStack() as stack:
        for _ in range(PER_ADDRESS + 4):
            stack.enter_context(closing(socket.create_connection(address, TIMEOUT_S)))
        wait_for(
            lambda: ended(strict, "too many connections without login") >= before + 4, "those are too many", TIMEOUT_S
        )
    with connected(strict.address("sasl")) as client:
        log_in(client)


# Clients that do not read


def test_clients_that_do_not_read_under_tls(strict: Secured) -> None:
    """They request gigabytes. Unread responses count against the budget, and other clients are served all the time."""
    config = strict.librdkafka("tls")
    topic = new_topic(config)
    producer = Producer({**config, "message.max.bytes": 1_000_000})
    for _ in range(20):
        producer.produce(topic, bytes(500_000))
    assert producer.flush(TIMEOUT_S) == 0
    context = ssl.create_default_context(cafile=str(strict.authority.certificate))
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 8 * MIB}
    fields: dict[str, Any] = {**READ_FROM, "topics": [{"topic": topic, "partitions": [asked]}]}
    frame = encode_request("Fetch", 4, fields)
    before = resident_bytes(strict.gateway.pid)
    with contextlib.ExitStack() as stack:
        for _ in range(DEAF_CLIENTS):
            plain = socket.create_connection((HOST, strict.ports["tls"]), TIMEOUT_S)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
            connection = stack.enter_context(context.wrap_socket(plain, server_hostname=HOST))
            with contextlib.suppress(OSError):
                connection.sendall((len(frame).to_bytes(4, "big") + frame) * 20)
        for _ in range(20):
            assert served_by_tls(strict, context)
            assert resident_bytes(strict.gateway.pid) - before < MOST_BYTES
            time.sleep(0.1)


def served_by_tls(strict: Secured, context: ssl.SSLContext) -> bool:
    other = socket.create_connection((HOST, strict.ports["tls"]), TIMEOUT_S)
    with context.wrap_socket(other, server_hostname=HOST) as secured:
        frame = encode_request("ApiVersions", 0, {})
        secured.sendall(len(frame).to_bytes(4, "big") + frame)
        return len(secured.recv(4)) > 0
